"""Of `ray.util`, what a driver calls."""


def get_node_ip_address() -> str:
    return "127.0.0.1"
