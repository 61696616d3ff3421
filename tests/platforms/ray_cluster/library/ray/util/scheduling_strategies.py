"""Where an actor is to be."""

from ray.util.placement_group import PlacementGroup


class NodeAffinitySchedulingStrategy:
    """One node."""

    def __init__(self, node_id: str, soft: bool) -> None:
        assert not soft
        self.node_id = node_id


class PlacementGroupSchedulingStrategy:
    """One bundle of a group."""

    def __init__(self, group: PlacementGroup, placement_group_bundle_index: int) -> None:
        assert 0 <= placement_group_bundle_index < len(group.bundles)
