"""The application: endpoints around a ``Studio``. The event loop only moves bytes; the studio's threads do the work."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from typing import Any, TypeVar
from urllib.parse import quote

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from gpen_cli import __version__
from gpen_cli.serve import schema
from gpen_cli.serve.admission import Admission, Ticket
from gpen_cli.serve.front import Front
from gpen_cli.serve.metrics import TEXT_TYPE, device_memory, process_memory
from gpen_cli.serve.pages import load_pages
from gpen_cli.serve.problems import Problem, closing, problem_of
from gpen_cli.serve.requests import Ask, Form, read_ask, read_form
from gpen_cli.serve.security import Doorkeeper
from gpen_cli.serve.settings import ServeSettings
from gpen_cli.serve.work import Answer, Studio

log = logging.getLogger(__name__)

T = TypeVar("T")
Work = Callable[[Form, Ask, Ticket], T]

GONE = Response(status_code=499)
"""For a client that is not there any more: never sent."""


def create_app(studio: Studio, settings: ServeSettings) -> FastAPI:
    """The whole server but its socket. Tests enter a studio around stand-ins. The studio is closed with the app."""
    reception = Reception(studio, settings)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(studio.close)

    app = FastAPI(
        title="gpen",
        version=__version__,
        summary="Restores the faces in portraits.",
        docs_url=None,  # they fetch their scripts from other hosts
        redoc_url=None,
        lifespan=lifespan,
    )
    _add_problems(app)
    _add_photo_endpoints(app, reception)
    _add_figures(app, reception)
    pages = load_pages()
    for path, file in pages.items():
        app.add_api_route(path, _sender(file.data, file.media_type), methods=["GET"], include_in_schema=False)
    paths = [*pages, "/enhance", "/detect", "/preview", "/models", "/status", "/metrics", "/healthz", "/openapi.json"]
    app.add_middleware(Front, doorkeeper=Doorkeeper(settings), metrics=studio.metrics, paths=paths)
    return app


def _sender(data: bytes, media_type: str) -> Callable[[], Response]:
    def send() -> Response:
        return Response(data, media_type=media_type, headers={"Cache-Control": "no-cache"})

    return send


def _add_problems(app: FastAPI) -> None:
    @app.exception_handler(HTTPException)
    async def no_such_thing(request: Request, error: HTTPException) -> Response:
        if error.status_code == 405:
            sentence = f"This address does not take {request.method[:10]}; /openapi.json says what it takes."
            problem = Problem(405, "method-not-allowed", sentence, error.headers)
        else:
            problem = Problem(404, "not-found", "There is nothing at this address; the page is at /.")
        return problem.response(request.state.request_id)


def _add_photo_endpoints(app: FastAPI, reception: Reception) -> None:
    studio = reception.studio

    @app.post(
        "/enhance",
        response_class=Response,
        responses=schema.enhance_answers(),
        openapi_extra=schema.takes_picture(studio.models),
        summary="Restores the faces of a picture.",
    )
    async def enhance(request: Request) -> Response:
        def answered(answer: Answer) -> Response:
            headers = _answer_headers(answer)
            if "application/json" in request.headers.get("accept", ""):
                return JSONResponse(answer.as_json(), headers=headers)
            headers["Content-Disposition"] = f"inline; filename*=UTF-8''{quote(answer.name, safe='')}"
            return Response(answer.data, media_type=answer.media_type, headers=headers)

        return await reception.serve(request, studio.enhance, answered)

    @app.post(
        "/detect",
        response_class=JSONResponse,
        responses=schema.json_answer("The faces that would be restored, as a line of --report."),
        openapi_extra=schema.takes_picture(studio.models),
        summary="Finds the faces of a picture.",
    )
    async def detect(request: Request) -> Response:
        return await reception.serve(request, studio.detect, JSONResponse)

    @app.post("/preview", include_in_schema=False)
    async def preview(request: Request) -> Response:
        return await reception.serve(request, studio.preview, lambda data: Response(data, media_type="image/jpeg"))


def _answer_headers(answer: Answer) -> dict[str, str]:
    nets = sorted({face["net"] for face in answer.restored})
    return {
        "X-Gpen-Faces": str(len(answer.report["faces"])),
        "X-Gpen-Restored": str(len(answer.restored)),
        "X-Gpen-Seconds": f"{answer.seconds:.3f}",
        "X-Gpen-Net": "+".join(nets) or "none",
        "X-Gpen-Scale": f"{answer.report['scale']:g}",
    }


def _add_figures(app: FastAPI, reception: Reception) -> None:
    studio = reception.studio

    @app.get("/models", response_class=JSONResponse, responses=schema.json_answer("The nets that are loaded.", 401))
    async def models() -> Response:
        rows = [
            {
                "name": choice.name,
                "crop_size": choice.crop_size,
                "licence": choice.weights.licence if choice.weights.model else None,
            }
            for choice in studio.engine.choices
        ]
        setup = studio.engine.setup
        about = {"device": setup.device_names, "precision": setup.precision, "runtime": setup.runtime}
        return JSONResponse({"models": rows, "detector": studio.engine.detector_name, **about})

    @app.get("/status", response_class=JSONResponse, responses=schema.json_answer("How busy the server is.", 401))
    async def status() -> Response:
        return JSONResponse(reception.status())

    @app.get("/metrics", response_class=PlainTextResponse, responses=schema.problems(401))
    async def metrics() -> Response:
        return Response(studio.metrics.text(reception.gauges()), media_type=TEXT_TYPE)

    @app.get("/healthz", response_class=PlainTextResponse, responses=schema.problems(503))
    async def healthz(request: Request) -> Response:
        if studio.ready:
            return PlainTextResponse("ready\n")
        problem = Problem(503, "not-ready", "The nets are being loaded, or the server is closing; ask again.")
        return problem.response(request.state.request_id)


class Reception:
    """Takes requests in, gives them places, waits for the threads, and notices who has gone. Lives on the event loop."""

    def __init__(self, studio: Studio, settings: ServeSettings) -> None:
        self.studio = studio
        self._settings = settings
        self._admission = Admission(
            places=settings.max_queue,
            at_once=studio.threads,
            upload_bytes=settings.max_queue * settings.max_upload,
        )

    async def serve(self, request: Request, work: Work[T], answered: Callable[[T], Response]) -> Response:
        """The whole life of a request with a picture; every error becomes its problem details.

        ``work`` and ``answered`` run on a thread of the studio: base64 of a large picture takes its time, too.
        """
        request_id = request.state.request_id
        try:
            self._admission.check()
            with self._admission.upload() as upload:
                form = await read_form(
                    request, upload, max_upload=self._settings.max_upload, seconds=self._settings.timeout
                )
                ask = read_ask(request, form, self.studio.options, self.studio.models)
                answer = await self._work(request, lambda ticket: answered(work(form, ask, ticket)))
            return GONE if answer is None else answer
        except ClientDisconnect:
            return GONE
        except Exception as error:  # noqa: BLE001  whatever it is, the client gets one sentence and the log the rest
            return problem_of(error, request_id).response(request_id)

    async def _work(self, request: Request, work: Callable[[Ticket], T]) -> T | None:
        """None when the client has gone. Raises Problem 429, 504, and what the work raises."""
        self._admission.enter()
        ticket = Ticket()
        try:
            running = self.studio.start(work, ticket)
        except RuntimeError:
            self._admission.leave()
            raise closing() from None
        running.add_done_callback(self._leaver())
        waiting = asyncio.wrap_future(running)
        gone = asyncio.ensure_future(_until_gone(request))
        try:
            limit = self._settings.timeout
            both: set[asyncio.Future[Any]] = {waiting, gone}
            await asyncio.wait(both, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
            if waiting.cancelled():
                raise closing()
            if waiting.done():
                return waiting.result()
            if gone.done():
                return None
            raise Problem(504, "timeout", f"The picture was not done within {limit:g} s; try a smaller one, or later.")
        finally:
            gone.cancel()
            if not waiting.done():
                self._give_up(ticket, waiting)

    def _give_up(self, ticket: Ticket, waiting: asyncio.Future[Any]) -> None:
        """Nobody waits any more: what has not begun is dropped, what runs ends at its next step."""
        ticket.give_up()
        waiting.cancel()
        self.studio.batcher.drop(ticket)

    def _leaver(self) -> Callable[[Future[Any]], None]:
        """Frees the place when the work has truly ended, from whichever thread that is."""
        loop = asyncio.get_running_loop()
        begin = loop.time()

        def leave(cancelled: bool) -> None:
            self._admission.leave()
            if not cancelled:
                self._admission.note_seconds(loop.time() - begin)

        def done(future: Future[Any]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has closed, and the places with it
                loop.call_soon_threadsafe(leave, future.cancelled())

        return done

    def status(self) -> dict[str, Any]:
        """For the page: measured figures, and what can be expected of them."""
        memory = device_memory(self.studio.engine.setup.devices)
        return {
            "device": self.studio.engine.setup.device_names,
            "load": round(self.studio.load(), 2),
            "memory_bytes": memory[0] if memory else process_memory(),
            "memory_total_bytes": memory[1] if memory else None,
            "requests_inside": self._admission.inside,
            "expected_seconds": round(self._admission.seconds_ahead(), 2) or None,
            "max_upload_bytes": self._settings.max_upload,
        }

    def gauges(self) -> dict[str, tuple[str, str, float]]:
        """What /metrics reads when it is asked."""
        batcher, setup = self.studio.batcher, self.studio.engine.setup
        figures: dict[str, tuple[str, str, float]] = {
            "gpen_ready": ("gauge", "1 when nets are loaded and warm.", float(self.studio.ready)),
            "gpen_requests_inside": ("gauge", "Requests that wait or are worked on.", self._admission.inside),
            "gpen_upload_bytes": ("gauge", "Memory held by uploads.", self._admission.held_bytes),
            "gpen_crops_waiting": ("gauge", "Faces that wait for the device.", batcher.waiting),
            "gpen_passes_total": ("counter", "Forward passes of nets.", batcher.passes),
            "gpen_crops_total": ("counter", "Faces in them; by gpen_passes_total: the batch fill.", batcher.crops_run),
            "gpen_batch_limit": ("gauge", "Faces in one forward pass, at most.", setup.micro_batch),
            "gpen_device_busy_seconds_total": ("counter", "Seconds in forward passes.", batcher.busy_seconds),
        }
        if (resident := process_memory()) is not None:
            figures["gpen_process_memory_bytes"] = ("gauge", "Memory this process holds.", resident)
        if (memory := device_memory(setup.devices)) is not None:
            figures["gpen_device_memory_used_bytes"] = ("gauge", "Device memory in use, by all.", memory[0])
            figures["gpen_device_memory_total_bytes"] = ("gauge", "Device memory there is.", memory[1])
        return figures


async def _until_gone(request: Request) -> None:
    """Ends when the client closes the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
