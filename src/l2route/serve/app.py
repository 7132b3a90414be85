"""The application: all routes of the server."""

from fastapi import FastAPI

from l2route.serve.options import ServeOptions
from l2route.serve.pages import add_pages
from l2route.serve.served import Served


def create_app(served: Served, options: ServeOptions) -> FastAPI:
    """Make the application that answers requests from an index.

    Args:
        served: the index.
        options: limits, time-outs and what is logged.
    """
    app = FastAPI(title="l2route", docs_url=None, redoc_url=None)
    add_pages(app, served)
    return app
