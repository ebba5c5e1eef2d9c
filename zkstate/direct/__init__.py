"""A client of ZooKeeper on kazoo, whose threads send their own requests and read their own answers.

All private names of kazoo that this project uses are used here. The package imports nothing of the project.
"""

from zkstate.direct.client import Client
from zkstate.direct.handler import DirectHandler, StockHandler

__all__ = ["Client", "DirectHandler", "StockHandler"]
