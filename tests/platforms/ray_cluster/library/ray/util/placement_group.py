"""Groups of nodes."""


class PlacementGroup:
    """A group, which is also the reference to its readiness."""

    def __init__(self, bundles: list[dict[str, float]]) -> None:
        self.bundles = bundles

    def ready(self) -> "PlacementGroup":
        return self


def placement_group_table() -> dict[str, dict[str, str]]:
    return {"g": {"state": "CREATED"}}


def placement_group(bundles: list[dict[str, float]], strategy: str) -> PlacementGroup:
    assert strategy == "STRICT_SPREAD"
    assert all(bundles)
    return PlacementGroup(bundles)
