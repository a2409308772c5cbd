"""The cases that `eventsourcing` ships for infrastructure factories and for transcoders, over ours."""

from __future__ import annotations

from eventsourcing.persistence import Transcoding, UUIDAsHex
from eventsourcing.tests import persistence as cases
from msgledger.ledger.store import apsw
from msgledger.ledger.store.transcoding import MsgspecTranscoder

from .kit import InFolder


class OwnTracking(apsw.ApswTrackingRecorder):
    pass


class TestFactory(InFolder, cases.InfrastructureFactoryTestCase[apsw.Factory]):
    def expected_factory_class(self) -> type[apsw.Factory]:
        return apsw.Factory

    def expected_aggregate_recorder_class(self) -> type[apsw.ApswAggregateRecorder]:
        return apsw.ApswAggregateRecorder

    def expected_application_recorder_class(self) -> type[apsw.ApswApplicationRecorder]:
        return apsw.ApswApplicationRecorder

    def expected_tracking_recorder_class(self) -> type[apsw.ApswTrackingRecorder]:
        return apsw.ApswTrackingRecorder

    def tracking_recorder_subclass(self) -> type[apsw.ApswTrackingRecorder]:
        return OwnTracking

    def expected_process_recorder_class(self) -> type[apsw.ApswProcessRecorder]:
        return apsw.ApswProcessRecorder


def as_what_it_extends(extending: type, base: type, name_: str) -> Transcoding:
    """The transcoding that a program registers for a class of its own that extends a built-in one."""

    class Own(Transcoding):
        type = extending
        name = name_

        def encode(self, obj: object) -> object:
            return base(obj)

        def decode(self, data: object) -> object:
            return extending(data)

    return Own()


class TestTranscoder(cases.TranscoderTestCase):
    def construct_transcoder(self) -> MsgspecTranscoder:
        transcoder = MsgspecTranscoder()
        for transcoding in (
            UUIDAsHex(),
            cases.CustomType1AsDict(),
            cases.CustomType2AsDict(),
            as_what_it_extends(cases.Mydict, dict, "mydict"),
            as_what_it_extends(cases.MyList, list, "mylist"),
            as_what_it_extends(cases.MyStr, str, "mystr"),
            as_what_it_extends(cases.MyInt, lambda obj: obj.real, "myint"),
        ):
            transcoder.register(transcoding)
        return transcoder
