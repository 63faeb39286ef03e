"""python -m hakmem: the command hakmem."""

from hakmem_lab.cli import main

if __name__ == "__main__":
    main()
