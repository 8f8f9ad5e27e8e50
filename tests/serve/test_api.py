"""The API: what goes in, what comes out, and what is said when something is wrong."""

from __future__ import annotations

import base64
import json
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from stand_ins import StandInNet

from gpen_cli.errors import DeviceError, WeightsError
from gpen_cli.runtime.protocol import NetMemoryError
from serve.kit import FACE, HeldNet, negative, pixels_of, png, problem, upload

WIDE = (256, 128)


def test_a_picture_comes_back_restored_as_png_with_its_figures(serve):
    answer = serve().enhance(png((40, 90, 160)))
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "image/png"
    assert answer.headers["x-gpen-faces"] == "1"
    assert answer.headers["x-gpen-restored"] == "1"
    assert answer.headers["x-gpen-net"] == "stand-in-256"
    assert answer.headers["x-gpen-scale"] == "1"
    assert 0 < float(answer.headers["x-gpen-seconds"]) < 10
    assert answer.headers["content-disposition"] == "inline; filename*=UTF-8''me_enhanced.png"
    pixels = pixels_of(answer.content)
    assert pixels.shape == (128, 128, 3)
    assert np.array_equal(pixels[64, 64], [215, 165, 95]), "the face is the net's"
    assert np.array_equal(pixels[1, 126], [40, 90, 160]), "the rest is the photo's"


def test_the_same_bytes_as_from_the_python_api(serve):
    from gpen_cli import Restorer

    server = serve()
    with Restorer(server.studio.options, engine=server.studio.engine) as restorer:
        expected = restorer.restore(pixels_of(png((40, 90, 160))))
    assert np.array_equal(pixels_of(server.enhance(png((40, 90, 160))).content), expected)


@pytest.mark.parametrize("accept", ["application/json", "application/json, text/plain"])
def test_json_has_the_report_line_and_the_picture(serve, accept):
    answer = serve().enhance(headers={"Accept": accept})
    body = answer.json()
    assert body["report"]["status"] == "done"
    assert body["report"]["source"] == "me.png"
    assert body["report"]["target"] is None
    assert body["report"]["faces"][0]["decision"] == "restored"
    assert {"decode", "detect", "restore", "compose", "encode"} <= body["report"]["seconds"].keys()
    assert body["media_type"] == "image/png"
    assert body["name"] == "me_enhanced.png"
    assert pixels_of(base64.b64decode(body["image"])).shape == (128, 128, 3)


@pytest.mark.parametrize(
    ("name", "media"), [("jpg", "image/jpeg"), ("webp", "image/webp"), ("bmp", "image/bmp"), ("tiff", "image/tiff")]
)
def test_the_format_can_be_chosen(serve, name, media):
    answer = serve().enhance(format=name)
    assert answer.headers["content-type"] == media
    assert pixels_of(answer.content).shape == (128, 128, 3)


def test_format_same_and_quality(serve):
    server = serve()
    assert server.enhance(format="same").headers["content-type"] == "image/png"
    sizes = [len(server.enhance(format="jpg", quality=str(quality)).content) for quality in (1, 100)]
    assert sizes[0] < sizes[1]


def test_strength_size_colour_and_sharpening_are_the_requests_own(serve):
    server = serve()
    assert np.array_equal(pixels_of(server.enhance(fidelity_weight="0").content)[64, 64], [40, 90, 160])
    assert pixels_of(server.enhance(upscale="2").content).shape == (256, 256, 3)
    assert pixels_of(server.enhance(query="?upscale=2").content).shape == (256, 256, 3), "as query too"
    assert pixels_of(server.enhance(query="?upscale=2", upscale="1").content).shape == (128, 128, 3), "the form wins"
    kept = pixels_of(server.enhance(color_fix="lab").content)[64, 64]
    assert not np.array_equal(kept, [215, 165, 95])
    assert np.array_equal(pixels_of(server.enhance(sharpen="1").content)[64, 64], [215, 165, 95])
    assert np.array_equal(pixels_of(server.enhance().content)[64, 64], [215, 165, 95]), "and nothing of it stays"


def test_only_the_region_asked_for_is_restored(serve):
    server = serve()
    left, top, right, bottom = (float(value) for value in FACE.box)
    answer = server.enhance(
        png(size=WIDE),
        faces=f"{left},{top},{right - left},{bottom - top}",
        headers={"Accept": "application/json"},
    )
    body = answer.json()
    assert [face["decision"] for face in body["report"]["faces"]] == ["restored", "skipped"]
    assert body["report"]["faces"][1]["reason"] == "outside the region asked for"
    pixels = pixels_of(base64.b64decode(body["image"]))
    assert np.array_equal(pixels[64, 64], [215, 165, 95])
    assert np.array_equal(pixels[64, 190], [40, 90, 160])
    nothing = server.enhance(png(size=WIDE), faces="500,500,4,4", headers={"Accept": "application/json"}).json()
    assert nothing["report"]["status"] == "no_face"
    assert "no face lies in the region" in nothing["report"]["warnings"][0]


def test_a_model_among_the_loaded_can_be_named(serve):
    server = serve()
    assert server.enhance(model="stand-in-256").status_code == 200
    assert server.enhance(model="auto").status_code == 200
    assert "stand-in-256" in problem(server.enhance(model="gpen-bfr-9999"), 422, "bad-value")


def test_detect_finds_and_restores_nothing(serve):
    server = serve()
    crops = server.net.crops
    report = server.client.post("/detect", files=upload(png(size=WIDE))).json()
    assert report["size"] == [256, 128]
    assert [face["decision"] for face in report["faces"]] == ["planned", "planned"]
    assert np.allclose(report["faces"][0]["box"], FACE.box, atol=1.5)
    assert server.net.crops == crops
    assert server.client.post("/detect", files=upload(png((0, 0, 0)))).json()["status"] == "no_face"


def test_preview_shows_what_browsers_cannot(serve):
    answer = serve().client.post("/preview", files=upload())
    assert answer.headers["content-type"] == "image/jpeg"
    assert pixels_of(answer.content).shape == (128, 128, 3)


def test_models_status_and_openapi(serve):
    server = serve()
    models = server.client.get("/models").json()
    assert [row["name"] for row in models["models"]] == ["stand-in-256"]
    assert models["device"] == "cpu"
    status = server.client.get("/status").json()
    assert status["requests_inside"] == 0
    assert status["max_upload_bytes"] == 10_000_000
    document = server.client.get("/openapi.json").json()
    assert {"/enhance", "/detect", "/models", "/metrics", "/healthz"} <= document["paths"].keys()
    answers = document["paths"]["/enhance"]["post"]["responses"]
    assert {"200", "400", "401", "413", "415", "422", "429", "504"} <= answers.keys()
    form = document["paths"]["/enhance"]["post"]["requestBody"]["content"]["multipart/form-data"]["schema"]
    assert {"image", "fidelity_weight", "faces"} <= form["properties"].keys()


def test_healthz_says_ready_only_when_the_nets_are_warm(serve):
    server = serve(warm=False)
    problem(server.client.get("/healthz"), 503, "not-ready")
    server.studio.warm()
    assert server.client.get("/healthz").text == "ready\n"
    assert server.net.passes == 1, "each net was run once"
    server.studio.close()
    problem(server.client.get("/healthz"), 503, "not-ready")
    problem(server.enhance(), 503, "not-ready")


# -- what is wrong -----------------------------------------------------------------------------------------------------


def test_400_no_image_or_no_picture(serve):
    server = serve()
    no_image = server.client.post("/enhance", files={"upscale": (None, "2")})
    assert "image" in problem(no_image, 400, "no-image")
    problem(server.enhance(b"hello, this is a text", name="note.txt"), 400, "not-a-picture")
    problem(server.enhance(b""), 400, "not-a-picture")
    problem(server.enhance(png()[:-40], name="cut.png"), 400, "not-a-picture")
    twice = [("image", ("a.png", png())), ("image", ("b.png", png()))]
    problem(server.client.post("/enhance", files=twice), 400, "bad-request")


def test_400_a_form_that_ends_too_early(serve):
    head = {"Content-Type": "multipart/form-data; boundary=xyz"}
    body = b'--xyz\r\nContent-Disposition: form-data; name="image"; filename="a.png"\r\n\r\nabc'
    client = serve().client
    problem(client.post("/enhance", content=body, headers=head), 400, "bad-request")
    problem(client.post("/enhance", content=b"no form at all", headers=head), 400, "bad-request")


def test_404_and_405(serve):
    client = serve().client
    problem(client.get("/nothing"), 404, "not-found")
    problem(client.get("/docs"), 404, "not-found")
    problem(client.get("/../pyproject.toml"), 404, "not-found")
    problem(client.get("/enhance"), 405, "method-not-allowed")


def test_413_a_file_or_a_picture_that_is_too_large(serve):
    server = serve(max_upload=3000, max_pixels=20_000)
    assert "0.003 MB" in problem(server.enhance(b"\x89PNG" + bytes(3000)), 413, "too-large")
    assert "0.003 MB" in problem(server.enhance(b"\x89PNG" + bytes(3_000_000)), 413, "too-large"), "by its length"
    sentence = problem(server.enhance(png(size=(200, 200))), 413, "too-large")
    assert "40000 pixels" in sentence

    def chunks():
        yield b'--xyz\r\nContent-Disposition: form-data; name="image"; filename="a.png"\r\n\r\n'
        for _ in range(1000):
            yield bytes(1000)

    head = {"Content-Type": "multipart/form-data; boundary=xyz"}
    problem(server.client.post("/enhance", content=chunks(), headers=head), 413, "too-large")
    assert server.studio.metrics is not None


def test_415_another_kind_of_body(serve):
    client = serve().client
    problem(client.post("/enhance", content=png(), headers={"Content-Type": "image/png"}), 415, "wrong-type")
    problem(client.post("/enhance"), 415, "wrong-type")
    problem(client.post("/enhance", data={"a": "b"}), 415, "wrong-type")
    bare = {"Content-Type": "multipart/form-data"}
    problem(client.post("/enhance", content=b"", headers=bare), 415, "wrong-type")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("fidelity_weight", "3"), ("fidelity_weight", "nan"), ("fidelity_weight", "much"), ("upscale", "9"),
        ("upscale", "inf"), ("color_fix", "sepia"), ("sharpen", "-1"), ("format", "exe"), ("quality", "101"),
        ("quality", "9.5"), ("faces", "1,2,3"), ("faces", "1,2,3,nan"), ("faces", "1,2,0,5"), ("faces", "a,b,c,d"),
        ("faces", "１,2,30,30"), ("faces", "1,2,3_0,30"), ("quality", "９５"), ("upscale", "２"),
        ("no_face", "skip"), ("model", "x" * 300), ("strenght", "1"), ("image2", "1"),
    ],
)  # fmt: skip
def test_422_a_value_or_field_that_is_not_allowed(serve, name, value):
    server = serve()
    problem(server.enhance(**{name: value}), 422, "bad-value")
    if len(value) < 100:
        problem(server.enhance(query=f"?{name}={value}"), 422, "bad-value")


def test_422_a_field_that_is_given_twice_or_overridden_with_a_wrong_value(serve):
    server = serve()
    assert "more than once" in problem(server.enhance(query="?quality=5&quality=6"), 422, "bad-value")
    twice = [("image", ("a.png", png())), ("quality", (None, "5")), ("quality", (None, "6"))]
    assert "quality" in problem(server.client.post("/enhance", files=twice), 422, "bad-value")
    problem(server.enhance(query="?quality=much", quality="6"), 422, "bad-value")


def test_422_no_face_when_that_is_to_fail(serve):
    server = serve()
    black = png((0, 0, 0))
    assert "no face" in problem(server.enhance(black, no_face="fail"), 422, "no-face")
    problem(server.client.post("/detect", files=upload(black), data={"no_face": "fail"}), 422, "no-face")
    answer = server.enhance(black)
    assert answer.status_code == 200
    assert answer.headers["x-gpen-faces"] == "0"
    assert answer.headers["x-gpen-net"] == "none"


def test_429_when_the_queue_is_full_and_room_again_after(serve):
    net = HeldNet()
    server = serve(net, max_queue=2)
    with ThreadPoolExecutor(2) as pool:
        inside = [pool.submit(server.enhance) for _ in range(2)]
        _until(lambda: server.client.get("/status").json()["requests_inside"] == 2)
        answer = server.enhance()
        assert "try again" in problem(answer, 429, "queue-full")
        assert int(answer.headers["retry-after"]) >= 1
        net.gate.set()
        assert [future.result().status_code for future in inside] == [200, 200]
    _until(lambda: server.client.get("/status").json()["requests_inside"] == 0)
    assert server.enhance().status_code == 200


def test_504_when_it_takes_too_long_and_the_crops_are_dropped(serve):
    net = HeldNet()
    server = serve(net, timeout=0.4)
    problem(server.enhance(), 504, "timeout")
    problem(server.enhance(), 504, "timeout")
    assert server.studio.batcher.waiting == 0, "nobody waits for them"
    net.gate.set()
    _until(lambda: server.client.get("/status").json()["requests_inside"] == 0)
    assert server.enhance().status_code == 200
    assert net.crops == 2, "what had begun, and the last"


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (ZeroDivisionError("/home/secret"), 500, "bug"),
        (DeviceError("cuda:0 at /home/secret is lost"), 503, "not-ready"),
        (WeightsError("/home/secret is damaged"), 503, "not-ready"),
        (NetMemoryError("/home/secret"), 503, "not-ready"),
        (MemoryError(), 503, "not-ready"),
    ],
)
def test_errors_of_the_server_tell_no_path_and_others_go_on(serve, caplog, error, status, kind):
    class Failing(StandInNet):
        failing = True

        def run(self, crops):
            if self.failing:
                raise error
            return super().run(crops)

    net = Failing(negative)
    server = serve(net, warm=False)
    answer = server.enhance()
    assert "secret" not in answer.text
    problem(answer, status, kind)
    assert answer.headers["x-request-id"] in caplog.text, "the log has the rest"
    net.failing = False
    assert server.enhance().status_code == 200


def test_names_of_clients_are_no_paths_and_no_control_characters(serve):
    server = serve()
    for name in ("/etc/passwd/../x.png", "C:\\Users\\me\\x.png", "x\n\r.png", "n" * 500 + ".png", "", "名前.png"):
        answer = server.enhance(name=name or "x")
        source = json.loads(server.enhance(name=name or "x", headers={"Accept": "application/json"}).text)["report"][
            "source"
        ]
        assert answer.status_code == 200
        assert "/" not in source
        assert "\\" not in source
        assert len(source) <= 80


def _until(true, seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not become so"
        time.sleep(0.01)
