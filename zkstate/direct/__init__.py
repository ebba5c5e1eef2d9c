"""A client of ZooKeeper on kazoo, whose threads send their own requests and read their own answers.

Only this package uses private names of kazoo. It imports nothing else from the project.
"""

from zkstate.direct.client import Client
from zkstate.direct.handler import DirectHandler, StockHandler

__all__ = ["Client", "DirectHandler", "StockHandler"]
