"""`python -m pulsora`."""

from pulsora.cli import main

if __name__ == "__main__":
    main()
