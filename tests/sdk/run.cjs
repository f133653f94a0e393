// Every operation of @rhoas/kafka-management-sdk, unmodified, against a server.
// BASE, TOKEN (an organisation's admin), STRANGER (someone without quota), METRICS_PORT.
"use strict";

const assert = require("node:assert/strict");
const http = require("node:http");
const { setTimeout: sleep } = require("node:timers/promises");
const sdk = require("@rhoas/kafka-management-sdk");

const { BASE, TOKEN, STRANGER, METRICS_PORT } = process.env;
const CLUSTER = "0123456789abcdefghijklmnopqrstuv";
const SERIES = ["kafka_instance_partition_limit", "kafka_instance_connection_limit"];

// Which operations the package has, and which of them were answered as they should be.
const classes = Object.entries(sdk).filter(([name]) => name.endsWith("Api"));
const operations = classes.flatMap(([name, of]) =>
  Object.getOwnPropertyNames(of.prototype)
    .filter((operation) => operation !== "constructor")
    .map((operation) => `${name}.${operation}`),
);
const answered = new Set();

function api(name, accessToken = TOKEN) {
  const of = new sdk[name](new sdk.Configuration({ basePath: BASE, accessToken }));
  const call = (operation) => async (...args) => {
    assert.equal(typeof of[operation], "function", `${name}.${operation}`);
    const response = await of[operation](...args);
    answered.add(`${name}.${operation}`);
    return response;
  };
  return new Proxy({}, { get: (_, operation) => call(operation) });
}

const kafkas = api("DefaultApi");
const security = api("SecurityApi");
const clusters = api("EnterpriseDataplaneClustersApi");
const errors = api("ErrorsApi");

// The code of a refusal, as programs that use this package find it.
async function refused(promise, status, code) {
  const error = await promise.then(
    (response) => assert.fail(`it was not refused: ${response.status}`),
    (error) => error,
  );
  assert.equal(error.name, "AxiosError", String(error.stack));
  assert.ok(sdk.isServiceApiError(error), String(error));
  const { data } = error.response;
  assert.deepEqual([error.response.status, sdk.getErrorCode(error)], [status, code], data.reason);
  assert.ok(Object.values(sdk.APIErrorCodes).includes(code), `${code} is none of the package's`);
  assert.equal(data.kind, "Error");
  assert.equal(data.id, code.split("-").pop());
  assert.equal(data.href, `/api/kafkas_mgmt/v1/errors/${data.id}`);
  assert.ok(data.reason && data.operation_id);
}

async function until(what, ask, holds) {
  for (let left = 1200; left > 0; left -= 1) {
    const found = await ask();
    if (holds(found)) return found;
    await sleep(50);
  }
  assert.fail(`${what} does not come`);
}

const one = async (id) => (await kafkas.getKafkaById(id)).data;
const isTime = (text) => assert.ok(!Number.isNaN(Date.parse(text)), text);

async function offers() {
  const { data: version } = await kafkas.getVersionMetadata();
  assert.deepEqual([version.id, version.kind], ["v1", "APIVersion"]);
  assert.ok(version.collections.some(({ id, kind }) => id === "kafkas" && kind === "KafkaList"));

  const { data: providers } = await kafkas.getCloudProviders("1", "10");
  assert.equal(providers.kind, "CloudProviderList");
  assert.equal(providers.total, providers.items.length);
  const aws = providers.items.find(({ id }) => id === "aws");
  assert.deepEqual([aws.kind, aws.name, aws.enabled], ["CloudProvider", "aws", true]);

  const { data: regions } = await kafkas.getCloudProviderRegions("aws", "1", "10");
  assert.equal(regions.kind, "CloudRegionList");
  const region = regions.items.find(({ enabled }) => enabled);
  assert.equal(region.kind, "CloudRegion");
  const room = region.capacity.find(({ instance_type }) => instance_type === "standard");
  assert.ok(room.available_sizes.includes("x1"), JSON.stringify(region));

  const { data } = await kafkas.getInstanceTypesByCloudProviderAndRegion("aws", region.id);
  const standard = data.instance_types.find(({ id }) => id === "standard");
  assert.deepEqual(
    standard.supported_billing_models.map(({ id }) => id),
    ["standard", "marketplace", "eval", "enterprise"],
  );
  const [size] = standard.sizes;
  assert.deepEqual([size.id, size.quota_consumed, size.max_partitions], ["x1", 1, 1500]);
  assert.equal(size.ingress_throughput_per_sec.bytes, 52428800);
  await refused(
    kafkas.getInstanceTypesByCloudProviderAndRegion("nowhere", region.id), 400, "KAFKAS-MGMT-30");
  await refused(
    kafkas.getInstanceTypesByCloudProviderAndRegion("aws", "nowhere"), 400, "KAFKAS-MGMT-31");
  return region.id;
}

async function errorCodes() {
  const { data } = await errors.getErrors();
  assert.deepEqual([data.kind, data.items.length], ["ErrorList", 47]);
  const { data: taken } = await errors.getErrorById("36");
  assert.equal(taken.code, sdk.APIErrorCodes.DUPLICATE_KAFKA_CLUSTER_NAME ?? "KAFKAS-MGMT-36");
  assert.deepEqual(data.items.find(({ id }) => id === "36"), taken);
  await refused(errors.getErrorById("3"), 404, "KAFKAS-MGMT-7");
}

async function accounts() {
  const asked = { name: "robot", description: "of a test" };
  const { data: made } = await security.createServiceAccount(asked);
  assert.deepEqual([made.kind, made.name, made.description], ["ServiceAccount", "robot", "of a test"]);
  assert.match(made.client_id, /^srvc-acct-/);
  assert.ok(made.client_secret && made.owner && made.created_by);
  isTime(made.created_at);
  const { data: got } = await security.getServiceAccountById(made.id);
  assert.deepEqual([got.client_id, got.client_secret], [made.client_id, undefined]);
  const { data: all } = await security.getServiceAccounts();
  assert.deepEqual([all.kind, all.items.map(({ id }) => id)], ["ServiceAccountList", [made.id]]);
  const { data: by } = await security.getServiceAccounts(made.client_id);
  assert.deepEqual(by.items.map(({ id }) => id), [made.id]);
  const other = "srvc-acct-00000000-0000-4000-8000-000000000000";
  assert.deepEqual((await security.getServiceAccounts(other)).data.items, []);
  const { data: reset } = await security.resetServiceAccountCreds(made.id);
  assert.equal(reset.client_id, made.client_id);
  assert.ok(reset.client_secret && reset.client_secret !== made.client_secret);

  // The secret is good where the API says that people sign in.
  const { data: sso } = await security.getSsoProviders();
  assert.ok(sso.name && sso.base_url && sso.jwks && sso.valid_issuer);
  const sign_in = (client_secret) =>
    fetch(sso.token_url, {
      method: "POST",
      body: new URLSearchParams(
        { grant_type: "client_credentials", client_id: made.client_id, client_secret }),
    });
  assert.equal((await sign_in(made.client_secret)).ok, false);
  const { access_token } = await (await sign_in(reset.client_secret)).json();
  assert.equal((await fetch(sso.jwks)).status, 200);

  await refused(security.createServiceAccount({ name: "No" }), 400, "KAFKAS-MGMT-38");
  return async (id) => {
    // With it a Prometheus of the user's own scrapes.
    const { data: text } = await api("DefaultApi", access_token).federateMetrics(id);
    assert.match(text, /^# TYPE kafka_instance_partition_limit gauge\nkafka_instance_partition_limit{.*} 7.5$/m);
    const gone = await security.deleteServiceAccountById(made.id);
    assert.equal(gone.status, 204);
    assert.deepEqual((await security.getServiceAccounts()).data.items, []);
    await refused(security.getServiceAccountById(made.id), 404, "KAFKAS-MGMT-113");
  };
}

async function create(region) {
  const asked = {
    name: "demo", cloud_provider: "aws", region, plan: "standard.x1", billing_model: "eval",
    reauthentication_enabled: true,
  };
  const made = await kafkas.createKafka(true, asked);
  assert.equal(made.status, 202);
  const { id, status } = made.data;
  assert.ok(["accepted", "preparing", "provisioning", "ready"].includes(status), status);
  assert.deepEqual(
    [made.data.kind, made.data.href], ["Kafka", `/api/kafkas_mgmt/v1/kafkas/${id}`]);
  await refused(kafkas.createKafka(false, { name: "other" }), 400, "KAFKAS-MGMT-103");
  await refused(kafkas.createKafka(true, { name: "demo" }), 409, "KAFKAS-MGMT-36");
  await refused(kafkas.createKafka(true, { name: "De mo" }), 400, "KAFKAS-MGMT-32");
  await refused(kafkas.createKafka(true, { name: "" }), 400, "KAFKAS-MGMT-33");
  await refused(
    kafkas.createKafka(true, { name: "other", plan: "standard.x9" }), 400, "KAFKAS-MGMT-42");
  const nobody = new sdk.DefaultApi(new sdk.Configuration({ basePath: BASE }));
  const error = await nobody.getKafkas().catch((error) => error);
  assert.deepEqual([error.response.status, sdk.getErrorCode(error)], [401, "KAFKAS-MGMT-15"]);

  const ready = await until("it is ready", () => one(id), (kafka) => {
    assert.notEqual(kafka.status, "failed", kafka.failed_reason);
    return kafka.status === "ready";
  });
  const { bootstrap_server_host, created_at, updated_at, ...rest } = ready;
  assert.match(bootstrap_server_host, /:\d+$/);
  isTime(created_at);
  isTime(updated_at);
  assert.deepEqual(
    [rest.name, rest.cloud_provider, rest.region, rest.multi_az, rest.owner],
    ["demo", "aws", region, true, "tess"]);
  assert.deepEqual(
    [rest.instance_type, rest.size_id, rest.billing_model], ["standard", "x1", "eval"]);
  assert.deepEqual(
    [rest.reauthentication_enabled, rest.max_partitions], [true, 1500]);
  assert.equal(rest.max_data_retention_size.bytes, 1073741824000);
  assert.ok(rest.version && rest.browser_url.includes(id), JSON.stringify(rest));
  return id;
}

async function lists(id) {
  const { data: second } = await kafkas.createKafka(true, { name: "another" });
  const names = async (...args) =>
    (await kafkas.getKafkas(...args)).data.items.map(({ name }) => name);
  const { data: all } = await kafkas.getKafkas();
  assert.deepEqual([all.kind, all.page, all.size, all.total], ["KafkaRequestList", 1, 2, 2]);
  assert.deepEqual(await names(), ["another", "demo"]);
  assert.deepEqual(await names("1", "1", "name desc"), ["demo"]);
  assert.deepEqual(await names("2", "1", "name desc"), ["another"]);
  assert.deepEqual(await names("3", "1"), []);
  assert.deepEqual(await names("1", "10", "created_at desc, id"), ["another", "demo"]);
  const search = "name like 'de%' and (owner = tess or region <> nowhere)";
  assert.deepEqual(await names("1", "10", undefined, search), ["demo"]);
  assert.deepEqual(await names(undefined, undefined, undefined, "name in ('x')"), []);
  await refused(kafkas.getKafkas("1", "10", "no_such"), 400, "KAFKAS-MGMT-17");
  await refused(kafkas.getKafkas("1", "10", "name", "name ="), 400, "KAFKAS-MGMT-23");
  await refused(api("DefaultApi", STRANGER).getKafkaById(id), 404, "KAFKAS-MGMT-7");
  assert.deepEqual((await api("DefaultApi", STRANGER).getKafkas()).data.items, []);
  await until("it is ready", () => one(second.id), ({ status }) => status === "ready");
  await gone(second.id);
}

async function change(id) {
  const { data } = await kafkas.updateKafkaById(id, { reauthentication_enabled: false });
  assert.deepEqual([data.id, data.reauthentication_enabled], [id, false]);
  assert.equal((await one(id)).reauthentication_enabled, false);
  await refused(kafkas.updateKafkaById(id, { owner: "" }), 400, "KAFKAS-MGMT-33");
  await refused(
    api("DefaultApi", STRANGER).updateKafkaById(id, { owner: "me" }), 404, "KAFKAS-MGMT-7");

  const wanted = { desired_kafka_billing_model: "standard" };
  await refused(kafkas.promoteKafka(id, false, wanted), 400, "KAFKAS-MGMT-103");
  assert.equal((await kafkas.promoteKafka(id, true, wanted)).status, 202);
  const promoted = await until(
    "it is promoted", () => one(id), ({ billing_model }) => billing_model === "standard");
  assert.deepEqual([promoted.status, promoted.promotion_status], ["ready", undefined]);
}

async function metrics(id) {
  const now = (await kafkas.getMetricsByInstantQuery(id)).data;
  assert.deepEqual([now.kind, now.id, now.items.length], ["MetricsInstantQueryList", id, 29]);
  const { data: some } = await kafkas.getMetricsByInstantQuery(id, SERIES);
  assert.deepEqual(some.items.map(({ metric }) => metric.__name__).sort(), [...SERIES].sort());
  for (const { timestamp, value, metric } of some.items) {
    assert.deepEqual([timestamp, value, metric.topic], [1700000000000, 7.5, "t"]);
    assert.equal(metric.pod, undefined, "of our data plane");
  }
  const { data: range } = await kafkas.getMetricsByRangeQuery(id, 5, 60, SERIES.slice(0, 1));
  assert.deepEqual([range.kind, range.id, range.items.length], ["MetricsRangeQueryList", id, 1]);
  assert.equal(range.items[0].metric.__name__, SERIES[0]);
  assert.deepEqual(range.items[0].values, [
    { timestamp: 1700000000000, value: 7.5 }, { timestamp: 1700000060000, value: 8 },
  ]);
  await refused(kafkas.getMetricsByRangeQuery(id, 0, 60), 400, "KAFKAS-MGMT-21");
  await refused(
    api("DefaultApi", STRANGER).getMetricsByInstantQuery(id), 404, "KAFKAS-MGMT-7");
}

async function ownClusters() {
  const asked = {
    cluster_id: CLUSTER, cluster_ingress_dns_name: "apps.own.example.com",
    kafka_machine_pool_node_count: 3, access_kafkas_via_private_network: true,
  };
  const { data: made } = await clusters.registerEnterpriseOsdCluster(asked);
  assert.deepEqual([made.id, made.kind, made.cluster_id], [CLUSTER, "Cluster", CLUSTER]);
  assert.ok(made.status && made.supported_instance_types.instance_types.length);
  const parameters = made.fleetshard_parameters.map(({ id }) => id);
  assert.ok(parameters.includes("sso-secret") && parameters.includes("control-plane-url"));
  const { data: list } = await clusters.getEnterpriseOsdClusters();
  assert.deepEqual([list.kind, list.total, list.items[0].id], ["ClusterList", 1, CLUSTER]);
  const { data: got } = await clusters.getEnterpriseClusterById(CLUSTER);
  assert.equal(got.access_kafkas_via_private_network, true);
  assert.equal(got.capacity_information.kafka_machine_pool_node_count, 3);
  const { data: again } = await clusters.getEnterpriseClusterAddonParameters(CLUSTER);
  assert.equal(again.kind, "ClusterAddonParameters");
  assert.deepEqual(again.fleetshard_parameters, made.fleetshard_parameters);
  await refused(clusters.registerEnterpriseOsdCluster(asked), 409, "KAFKAS-MGMT-44");
  await refused(
    clusters.registerEnterpriseOsdCluster({ ...asked, cluster_id: "no" }), 400, "KAFKAS-MGMT-33");
  await refused(
    api("EnterpriseDataplaneClustersApi", STRANGER).getEnterpriseOsdClusters(),
    403, "KAFKAS-MGMT-120");
  await refused(clusters.deleteEnterpriseClusterById(false, CLUSTER), 400, "KAFKAS-MGMT-103");
  assert.equal((await clusters.deleteEnterpriseClusterById(true, CLUSTER)).status, 202);
  await until("the cluster is gone", async () => (await clusters.getEnterpriseOsdClusters()).data,
    ({ items }) => items.every(({ status }) => status === "deprovisioning" || status === "cleanup"));
}

async function gone(id) {
  await refused(kafkas.deleteKafkaById(id, false), 400, "KAFKAS-MGMT-103");
  const deleted = await kafkas.deleteKafkaById(id, true);
  assert.equal(deleted.status, 202);
  await until("it is gone", () => kafkas.getKafkas("1", "100", "id", "name like '%'"),
    ({ data }) => data.items.every((kafka) => kafka.id !== id));
  await refused(kafkas.getKafkaById(id), 404, "KAFKAS-MGMT-7");
}

// Plays a Prometheus that has every series that it is asked for.
const prometheus = http.createServer(async (request, response) => {
  const form = new URLSearchParams((await request.toArray()).join(""));
  const query = form.get("query");
  const names = query.match(/__name__=~?"([^"]*)"/)[1].split("|");
  const [own] = query.match(/strimzi_io_cluster="demo",namespace="[^"]+"/) ?? [];
  const [first, second] = [[1700000000, "7.5"], [1700000060, "8"]];
  const values = request.url.endsWith("query_range") ? { values: [first, second] } : { value: first };
  const result = (own ? names : []).map((name) => (
    { metric: { __name__: name, topic: "t", pod: "p" }, ...values }));
  response.end(JSON.stringify({ status: "success", data: { result } }));
});

async function main() {
  await new Promise((done) => prometheus.listen(Number(METRICS_PORT), "127.0.0.1", done));
  const region = await offers();
  await errorCodes();
  const leave = await accounts();
  const id = await create(region);
  await lists(id);
  await change(id);
  await metrics(id);
  await leave(id);
  await ownClusters();
  await gone(id);
  const missed = operations.filter((operation) => !answered.has(operation));
  assert.deepEqual(missed, [], "operations of the package that were not called");
  assert.equal(operations.length, 26);
  console.log(`${answered.size} operations`);
}

main().then(() => process.exit(0), (error) => {
  console.error(error);
  if (error.response) console.error(error.config.method, error.config.url, error.response.status, error.response.data);
  process.exit(1);
});
