"""``python -m pipeproof``."""

from pipeproof.cli.main import main

if __name__ == "__main__":
    main()
