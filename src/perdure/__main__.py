"""`python -m perdure`, and the console scripts `perdure` and `schedulerctl`."""

from __future__ import annotations


def main() -> None:
    """Run the command line; exits with its exit code."""
    from perdure.cli.main import main as cli

    cli()


if __name__ == "__main__":
    main()
