"""A Kafka from its creation to its end with the generated Python client, unmodified.
BASE and TOKEN, as for run.cjs."""

import os
import time

import rhoas_kafka_mgmt_sdk as sdk
from rhoas_kafka_mgmt_sdk.api.default_api import DefaultApi
from rhoas_kafka_mgmt_sdk.api.security_api import SecurityApi
from rhoas_kafka_mgmt_sdk.model.kafka_request_payload import KafkaRequestPayload
from rhoas_kafka_mgmt_sdk.model.service_account_request import ServiceAccountRequest


def until(what, holds):
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, f"{what} does not come"
        time.sleep(0.05)


def refused(status, code, call, *args, **named):
    try:
        call(*args, **named)
    except sdk.ApiException as error:
        assert error.status == status and f'"{code}"' in str(error.body), error
    else:
        raise AssertionError(f"{code} was expected")


configuration = sdk.Configuration(host=os.environ["BASE"], access_token=os.environ["TOKEN"])
with sdk.ApiClient(configuration) as client:
    kafkas = DefaultApi(client)
    made = kafkas.create_kafka(True, KafkaRequestPayload(name="python"))
    assert made.kind == "Kafka" and made.name == "python", made
    refused(409, "KAFKAS-MGMT-36", kafkas.create_kafka, True, KafkaRequestPayload(name="python"))
    until("it is ready", lambda: kafkas.get_kafka_by_id(made.id).status == "ready")
    assert ":" in kafkas.get_kafka_by_id(made.id).bootstrap_server_host
    found = kafkas.get_kafkas(page="1", size="10", order_by="name", search="name = python")
    assert (found.kind, found.total) == ("KafkaRequestList", 1), found
    assert found.items[0]["id"] == made.id

    # Its declared answer is an Error: an empty one makes it raise.
    kafkas.delete_kafka_by_id(made.id, True)
    until("it is gone", lambda: kafkas.get_kafkas(search="name = python").total == 0)
    refused(404, "KAFKAS-MGMT-7", kafkas.get_kafka_by_id, made.id)

    accounts = SecurityApi(client)
    account = accounts.create_service_account(ServiceAccountRequest(name="python"))
    assert account.client_secret
    assert [one["id"] for one in accounts.get_service_accounts().items] == [account.id]
    try:
        accounts.delete_service_account_by_id(account.id)
    except sdk.ApiTypeError:
        # It wants a body where the contract has a 204, which has none: so it always was.
        pass
    assert accounts.get_service_accounts().items == []
print("python: done")
