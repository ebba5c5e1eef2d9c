"""An object in the storage service leaves it as a bag."""

from pathlib import Path

import bagit

from operations.objects.objects import ExportRequest, export, object_to_export
from pipeline.records import SubmissionMode
from tests.component.test_export import payload
from tests.plugins.merritt.repository import ARK, MerrittRepository
from tests.servers.merritt import Merritt


def test_an_object_in_the_merritt_storage_service_is_exported(
    kept: MerrittRepository, storage_service: Merritt, tmp_path: Path
) -> None:
    kept.storage = kept.kept
    job = kept.submitted(1, SubmissionMode.ADD, {"a.txt": "alpha"})
    kept.recorded(job)
    known, number = object_to_export(kept.inventory, ARK, None)

    request = ExportRequest(known, number, tmp_path / "bag", "somebody")
    export(request, kept.settings, kept.inventory, kept.kept, lambda _: None, stopped=lambda: False)

    bagit.Bag(str(tmp_path / "bag")).validate()
    assert payload(tmp_path / "bag") == {"a.txt": "alpha"}
