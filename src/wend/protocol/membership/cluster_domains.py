"""The name of a peer's cluster where nobody gives one: its routing domain, from addresses or traced paths."""

from ipaddress import ip_address, ip_network

from wend.model.paths import Path


def domain_of_address(text: str, prefix_bits: int) -> str:
    """The network of an address, such as `10.1.0.0/16`. ValueError where it is no address, or has not so many bits."""
    address = ip_address(text)
    if not 0 <= prefix_bits <= address.max_prefixlen:
        raise ValueError(f"an address of {address.max_prefixlen} bits has no prefix of {prefix_bits}")
    return str(ip_network((address, prefix_bits), strict=False))


def domain_of_path(path: Path | None) -> str | None:
    """The domain of the peer at the begin of a traced path: its first router. None where that did not answer."""
    if not path or path[0] is None:
        return None
    return f"router {path[0]}"
