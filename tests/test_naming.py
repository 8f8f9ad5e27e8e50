"""Every result has a name of its own, planned before any work: no result, and no photo, is ever lost to another."""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path, PurePath

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpen_cli.data import Job
from gpen_cli.errors import PhotoError
from gpen_cli.naming import SUFFIX, check_suffix, plan_batch, plan_enhance, refuse_own_input
from gpen_cli.photos.formats import FORMATS
from gpen_cli.sources import stem_of

INPUT, OUTPUT = Path("photos"), Path("restored")
FILE_NAME_BYTES = 255
"""The limit of ext4, APFS and NTFS, as most people meet it."""

ODD = [
    "😀",
    "日本 語",
    "[2020]",
    "100%",
    "-rf",
    "--",
    "a.b.c",
    " ",
    "é",
    "e\u0301",
    "ß",
    "SS",
    "ſ",
    "İ",
    "\udcff",
    "\n",
    "'",
]


def batch(names, *, output=OUTPUT, source=INPUT, format_name=None, suffix=SUFFIX):
    return plan_batch([Path(name) for name in names], source, output, suffix=suffix, format_name=format_name)


def targets(names, **options) -> list[str]:
    return [job.target.relative_to(OUTPUT).as_posix() for job in batch(names, **options)]


def enhance(*sources, output=None, output_dir=None, suffix=SUFFIX, format_name=None):
    return plan_enhance(sources, output=output, output_dir=output_dir, suffix=suffix, format_name=format_name)


def one_file_system_name(path) -> str:
    """Equal for what Windows or macOS holds for one name. Written otherwise than the code under test."""
    return unicodedata.normalize("NFD", unicodedata.normalize("NFD", str(path)).casefold())


def shortest(text: str, limit: int = FILE_NAME_BYTES) -> str:
    while len(os.fsencode(text)) > limit:
        text = text[:-1]
    return text


components = (
    st.lists(st.sampled_from([*ODD, "a", "A", "b", SUFFIX, "-2", ".jpg"]), min_size=1, max_size=4)
    .map("".join)
    .filter(lambda text: text not in (".", ".."))
)
suffixes = st.sampled_from([".jpg", ".JPG", ".png", ".jpeg", ".tif", ".heic", "", ".v2"])
names = st.one_of(
    st.tuples(components, suffixes).map("".join),
    st.tuples(st.sampled_from(["x", "é", "😀", "\udc80"]), st.integers(40, 255)).map(lambda p: shortest(p[0] * p[1])),
)
relatives = st.lists(st.lists(names, min_size=1, max_size=3).map("/".join), max_size=12, unique=True)
formats = st.sampled_from([None, "same", "png", "jpg"])


@settings(max_examples=250, deadline=None)
@given(relatives, formats)
@example(["a.jpg", "a.png"], None)
@example(["a.jpg", "a.png", "a.jpg_enhanced.jpg", "a.png_enhanced.png", "a.jpg_enhanced-2.jpg"], None)
@example(["a/b.jpg", "A/B.jpg", "A/b.JPG"], "same")
@example(["x.jpg", "x_enhanced.png/y.jpg"], None)
def test_no_two_results_share_a_name_on_any_file_system(paths, format_name):
    made = [job.target for job in batch(paths, format_name=format_name)]
    assert len({one_file_system_name(path) for path in made}) == len(paths)
    folders = {one_file_system_name(OUTPUT / parent) for path in paths for parent in PurePath(path).parents}
    assert folders.isdisjoint(one_file_system_name(path) for path in made), (
        "a result has the name of a folder of results"
    )


@settings(max_examples=150, deadline=None)
@given(relatives, formats)
def test_every_result_lies_in_the_output_under_its_photos_own_folder_with_a_name_that_fits(paths, format_name):
    for path, job in zip(paths, batch(paths, format_name=format_name), strict=True):
        assert job.target.parent == (OUTPUT / path).parent
        assert ".." not in job.target.relative_to(OUTPUT).parts
        assert len(os.fsencode(job.target.name)) <= FILE_NAME_BYTES
        assert job.target.suffix.lower() in {suffix for row in FORMATS.values() for suffix in row.suffixes}
        assert Path(job.source) == INPUT / path
        assert job.name == str(Path(path))


@settings(max_examples=100, deadline=None)
@given(relatives, formats)
def test_what_is_named_after_a_photo_is_the_photos_alone_and_fits_too(paths, format_name):
    labels = [job.label for job in batch(paths, format_name=format_name)]
    assert len({one_file_system_name(label) for label in labels}) == len(labels)
    assert all(len(os.fsencode(f"{Path(label).name}_face01_restored.png")) <= FILE_NAME_BYTES for label in labels)


@settings(max_examples=50, deadline=None)
@given(relatives)
def test_the_same_folder_gives_the_same_names_whatever_the_disk_holds(tmp_path_factory, paths):
    here = tmp_path_factory.mktemp("plan")
    before = batch(paths, output=here)
    for job in before:
        if len(os.fsencode(str(job.target))) < 1000 and all(len(os.fsencode(p)) < 256 for p in job.target.parts):
            job.target.parent.mkdir(parents=True, exist_ok=True)
            job.target.touch()
    assert batch(paths, output=here) == before


def test_names_are_planned_as_the_readme_says():
    assert targets(["trip/a.jpg"]) == ["trip/a_enhanced.png"]
    assert targets(["a.jpg"], format_name="jpg") == ["a_enhanced.jpg"]
    assert targets(["a.jpg"], suffix="-new") == ["a-new.png"]


def test_a_jpg_and_a_png_both_survive_and_say_which_they_are():
    assert targets(["a.jpg", "a.png"]) == ["a.jpg_enhanced.png", "a.png_enhanced.png"]


def test_same_names_in_two_folders_stay_apart():
    assert targets(["a/img.jpg", "b/img.jpg"]) == ["a/img_enhanced.png", "b/img_enhanced.png"]


@pytest.mark.parametrize("pair", [("A.jpg", "a.jpg"), ("é.jpg", "e\u0301.jpg"), ("ß.jpg", "SS.jpg")])
def test_names_that_differ_only_in_case_or_form_get_a_number(pair):
    first, second = targets(pair)
    assert one_file_system_name(first) != one_file_system_name(second)
    assert second.endswith("-2.png")


def test_same_format_keeps_each_suffix_and_so_needs_no_longer_names():
    assert targets(["a.JPG", "a.png"], format_name="same") == ["a_enhanced.JPG", "a_enhanced.png"]
    assert targets(["a.heic"], format_name="same") == ["a_enhanced.png"]
    assert [job.label for job in batch(["a.JPG", "a.png"], format_name="same")] == ["a_enhanced", "a_enhanced-2"]


def test_long_names_are_cut_and_stay_apart():
    first, second = targets(["é" * 120 + "1.jpg", "é" * 120 + "2.jpg"])
    assert first != second
    assert first.startswith("é" * 90)
    assert first.endswith("_enhanced.png")
    for name, target in (("1.jpg", first), ("2.jpg", second)):
        assert targets(["é" * 120 + name]) == [target], "a cut name must not depend on its neighbours"
    assert len(targets(["é" * 120 + ".jpg"], suffix="x" * 300)) == 1, "planning ends even where no name can fit"


def test_results_inside_a_tree_that_is_also_read_never_take_a_photos_name():
    jobs = batch(["in/x.jpg", "x_enhanced.png"], source=Path("photos/in"), output=Path("photos"))
    assert one_file_system_name(Path("photos/in/x_enhanced.png")) not in [one_file_system_name(j.target) for j in jobs]


def test_ten_thousand_equal_names_are_planned_at_once():
    jobs = enhance(*[f"{index}/img.jpg" for index in range(10_000)], output_dir=Path("out"))
    assert len({job.target for job in jobs}) == 10_000


# -- gpen enhance ------------------------------------------------------------------------------------------------------


def test_a_result_lies_beside_its_photo_unless_a_folder_is_given():
    assert enhance("trip/a.jpg")[0].target == Path("trip/a_enhanced.png")
    assert enhance("trip/a.jpg", output_dir=Path("out"))[0].target == Path("out/a_enhanced.png")
    assert enhance("trip/a.jpg", output=Path("b.jpg"))[0].target == Path("b.jpg")


@settings(max_examples=100, deadline=None)
@given(relatives.filter(bool), st.booleans())
def test_several_inputs_get_several_results(paths, together):
    jobs = enhance(*paths, output_dir=OUTPUT if together else None)
    assert len({one_file_system_name(job.target) for job in jobs}) == len(paths)
    assert {one_file_system_name(job.target) for job in jobs}.isdisjoint(map(one_file_system_name, paths))
    assert len({one_file_system_name(job.label) for job in jobs}) == len(paths)


def test_a_photo_named_twice_is_done_once():
    assert len(enhance("a.jpg", "a.jpg")) == 1


def test_two_spellings_of_a_folder_do_not_hide_a_clash(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "sub")
    for first, second in (
        ("a.jpg", str(tmp_path / "a.png")),
        ("sub/../a.jpg", "a.png"),
        ("sub/a.jpg", "link/a.png"),
    ):
        made = [os.path.realpath(job.target) for job in enhance(first, second)]
        assert len(set(made)) == 2, (first, second)


def test_the_result_of_one_photo_never_takes_the_name_of_another_photo():
    jobs = enhance("a.jpg", "a_enhanced.png")
    assert [job.target.name for job in jobs] == ["a.jpg_enhanced.png", "a_enhanced_enhanced.png"]


def test_standard_input_goes_to_standard_output_or_into_the_folder():
    assert enhance("-")[0].target is None
    assert enhance("-", output_dir=Path("out"))[0].target == Path("out/stdin_enhanced.png")


@pytest.mark.parametrize(
    ("url", "stem"),
    [
        ("https://example.org/p/face.jpg?size=2#x", "face"),
        ("https://example.org/p/my%20face.jpg", "my face"),
        ("https://example.org/", "download"),
        ("https://example.org", "download"),
        ("https://example.org/%2e%2e", "download"),
        ("https://example.org/..%2F..%2Fetc%2Fpasswd.png", ".._.._etc_passwd"),
        ("https://example.org/a%00b%5Cc%0A.png", "a_b_c_"),
        ("HTTP://EXAMPLE.ORG/%E6%97%A5.PNG", "日"),
    ],
)
def test_a_urls_result_is_a_plain_name_in_the_working_folder(url, stem):
    assert stem_of(url) == stem
    assert enhance(url)[0].target == Path(f"{stem}_enhanced.png")


def test_urls_longer_than_any_name_are_cut_and_kept_apart():
    urls = [f"https://example.org/{letter}/x.{'y' * 400}.{'z' * 300}" for letter in "abc"]
    jobs = enhance(*urls)
    assert len({job.target for job in jobs}) == len({job.label for job in jobs}) == 3
    assert all(len(job.target.name) <= FILE_NAME_BYTES and len(job.label) <= FILE_NAME_BYTES for job in jobs)


@pytest.mark.parametrize("source", [".", "..", "/", "a/..", "..."])
def test_a_folder_named_as_a_photo_is_planned_without_a_crash_since_the_reader_refuses_it(source):
    first, second = enhance(source, source + "/.")
    assert first.target != second.target
    assert first.label != second.label


# -- guards ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["", "/", "a/b", "a\\b", "\0", "x" * 101])
def test_a_suffix_that_is_no_part_of_a_name_is_refused(suffix):
    assert not check_suffix(suffix)


@pytest.mark.parametrize("suffix", ["_enhanced", " ", ".new", "-é😀", "%s"])
def test_any_other_suffix_is_taken_as_it_is(suffix):
    assert check_suffix(suffix)
    assert targets(["a.jpg"], suffix=suffix) == [f"a{suffix}.png"]


def test_a_photo_is_never_written_over_by_its_own_result(tmp_path):
    photo, link, other = tmp_path / "a.jpg", tmp_path / "link.jpg", tmp_path / "b.jpg"
    photo.write_bytes(b"x")
    other.write_bytes(b"y")
    link.symlink_to(photo)
    for target in (photo, link, tmp_path / "." / "a.jpg"):
        with pytest.raises(PhotoError, match="written over by its own result"):
            refuse_own_input(Job(str(photo), target, "a.jpg"))
    for job in (
        Job(str(photo), other, "a.jpg"),
        Job(str(photo), tmp_path / "new.png", "a.jpg"),
        Job(str(tmp_path / "gone.jpg"), other, "gone.jpg"),
        Job("-", other, "-"),
        Job("https://example.org/a.jpg", other, "a.jpg"),
        Job(str(photo), None, "a.jpg"),
    ):
        refuse_own_input(job)
