"""What a long run found: a table, and what was not as it should be."""


class Report:
    """What was found."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str]] = []
        self.problems: list[str] = []

    def row(self, name: str, value: str) -> None:
        """A line of the table."""
        self.rows.append((name, value))

    def expect(self, holds: bool, text: str) -> None:
        """Something that must be so."""
        if not holds:
            self.problems.append(text)

    def tell(self) -> int:
        """Print it; the exit code comes back."""
        width = max((len(name) for name, _ in self.rows), default=0)
        for name, value in self.rows:
            print(f"{name:<{width}}  {value}")
        for problem in self.problems:
            print(f"WRONG: {problem}")
        return 1 if self.problems else 0
