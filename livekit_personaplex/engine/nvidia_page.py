"""NVIDIA's browser client, as its users built it: a folder of files, at the root of the address.

The page asks for ``/api/chat`` on the address that it came from, so it needs no setting. None of it
is in this package.
"""

from pathlib import Path

from aiohttp import hdrs, web

from livekit_personaplex.errors import ConfigError

_INDEX = "index.html"
_PAGE = "nvidia-page"
_FOLDER = "nvidia-client"


def check_page(folder: Path) -> None:
    """Raises `ConfigError` unless there is a page in `folder`."""
    if not (folder / _INDEX).is_file():
        raise ConfigError(
            f"expected NVIDIA's client in {folder}, but there is no {_INDEX}; give the folder "
            "client/dist of NVIDIA/personaplex after npm run build"
        )


def add_page(app: web.Application, folder: Path) -> None:
    """Serve `folder`, and its page at ``/``; to be added last, since it answers on every path."""

    async def serve_index(request: web.Request) -> web.StreamResponse:
        return web.FileResponse(folder / _INDEX, headers={hdrs.CACHE_CONTROL: "no-cache"})

    app.router.add_get("/", serve_index, name=_PAGE)
    app.router.add_static("/", folder, name=_FOLDER)


def is_of_page(request: web.Request) -> bool:
    """Whether a request is for the page or one of its files."""
    resource = request.match_info.route.resource
    return resource is not None and resource.name in (_PAGE, _FOLDER)
