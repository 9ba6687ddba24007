"""``python -m gateway``: the ``greenroom`` command."""

from gateway.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
