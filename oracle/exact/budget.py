"""stub"""
from dataclasses import dataclass
@dataclass(frozen=True)
class Ways:
    x: int = 0
    @classmethod
    def from_dict(cls, d): return cls(**d)
def longest_ways(e): return None
