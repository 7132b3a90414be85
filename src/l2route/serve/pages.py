"""The web page of the server."""

from fastapi import FastAPI

from l2route.serve.served import Served


def add_pages(app: FastAPI, served: Served) -> None:
    """Add the page, its files and its endpoints."""
