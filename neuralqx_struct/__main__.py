"""``python -m neuralqx_struct``: the command line."""

from neuralqx_struct.cli import main

if __name__ == "__main__":
    main()
