"""One module per command; each has register(app) and imports heavy libraries only when it runs."""
