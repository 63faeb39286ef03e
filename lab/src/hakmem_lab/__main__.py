"""The command hakmem, and python -m hakmem_lab."""


def main() -> None:
    """Ctrl-C ends the command as quietly while its modules are imported as it does later."""
    try:
        from hakmem_lab.cli import main as command
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    command()


if __name__ == "__main__":
    main()
