"""Where an actor is to be."""

from ray.util.placement_group import PlacementGroup


class PlacementGroupSchedulingStrategy:
    """One bundle of a group."""

    def __init__(self, group: PlacementGroup, placement_group_bundle_index: int) -> None:
        assert 0 <= placement_group_bundle_index < len(group.bundles)
