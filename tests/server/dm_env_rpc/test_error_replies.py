"""Every refusal reaches the client with its code and its words."""

import pytest
from dm_env_rpc.v1 import dm_env_rpc_pb2
from google.rpc import code_pb2

from worldloom.protos import errors
from worldloom.server.dm_env_rpc.session import error_reply

KINDS = errors.RequestError.__subclasses__()


@pytest.mark.parametrize("kind", KINDS)
def test_a_refusal_has_its_name_as_code_and_keeps_its_words(kind: type[errors.RequestError]) -> None:
    response = dm_env_rpc_pb2.EnvironmentResponse.FromString(error_reply(kind("no world 'x': expected 'y' (ü, 世)")))
    assert response.WhichOneof("payload") == "error"
    assert code_pb2.Code.Name(response.error.code).replace("_", "").lower() == kind.__name__.lower()
    assert response.error.message == "no world 'x': expected 'y' (ü, 世)"


def test_words_that_cannot_be_sent_as_they_are_do_not_hide_the_refusal() -> None:
    response = dm_env_rpc_pb2.EnvironmentResponse.FromString(error_reply(errors.NotFound("no file \udcff")))
    assert (response.error.code, response.error.message) == (code_pb2.NOT_FOUND, "no file ?")
