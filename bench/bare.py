"""The bare service that `bench/serve.py` compares with: FastAPI and uvicorn as they come, one route for each measurement.

python -m bench.bare PAGE FOLDER     GET /page answers with PAGE; PUT /upload streams a body to a file and fsyncs it
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import uvicorn
from fastapi import FastAPI, Request
from starlette.responses import Response


def application(page: bytes, folder: Path) -> FastAPI:
    """Both routes. page: compressed by gzip."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)

    @app.get("/page")
    async def shown() -> Response:
        return Response(page, headers={"Content-Encoding": "gzip"}, media_type="text/html")

    @app.put("/upload")
    async def upload(request: Request) -> Response:
        with (folder / "upload").open("wb") as file:
            async for piece in request.stream():
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        return Response(status_code=201)

    return app


def main() -> None:
    """Serve until a signal comes."""
    page, folder = Path(sys.argv[1]).read_bytes(), Path(sys.argv[2])
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as opened:  # so that asyncio sets TCP_NODELAY
        opened.bind(("127.0.0.1", 0))
        opened.listen(1024)
        print(f"http://127.0.0.1:{opened.getsockname()[1]}/", flush=True)
        settings = uvicorn.Config(
            application(page, folder),
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
        )
        uvicorn.Server(settings).run(sockets=[opened])


if __name__ == "__main__":
    main()
