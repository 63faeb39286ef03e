"""Charts and tables as self-contained HTML: functions over the models of results.py."""
