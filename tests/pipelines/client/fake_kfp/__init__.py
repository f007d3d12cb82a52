"""A loopback server that answers the real kfp.Client as a KFP backend does."""

from fake_kfp.books import Books
from fake_kfp.controller import Controller
from fake_kfp.faults import Fault
from fake_kfp.openapi import ApiDescription
from fake_kfp.server import FakeKfp

__all__ = ["ApiDescription", "Books", "Controller", "FakeKfp", "Fault"]
