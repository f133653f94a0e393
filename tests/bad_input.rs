//! Bad input over real sockets: each gets a clear answer, none a hang or a fault of the server's,
//! and afterwards nothing is half-written.

#![expect(clippy::unwrap_used, reason = "a test")]

use base64::Engine;
use serde_json::json;
use support::account::rest;
use support::wire::{Reply, exchange, request};
use support::{Client, Plan, Server};

/// What must come back: the status, the field that is named, and a part of the message.
type Right<'a> = (u16, Option<&'a str>, &'a str);

struct World {
    _dir: tempfile::TempDir,
    plan: Plan,
    server: Server,
    token: String,
    client: Client,
    /// A widget that is there.
    id: String,
    cases: usize,
    faults: Vec<String>,
}

impl World {
    async fn new() -> World {
        let dir = tempfile::tempdir().unwrap();
        let plan = Plan::new(env!("CARGO_BIN_EXE_e2e"), dir.path());
        let plan = plan.set("http.header_timeout_s", 2).set("identity.clock_skew_s", 0);
        let server = plan.start().await;
        let (token, client) = (plan.token(), plan.client());
        let id = client.create(&json!({"name": "there", "size": 1})).await;
        World { _dir: dir, plan, server, token, client, id, cases: 0, faults: Vec::new() }
    }

    async fn send(&self, method: &str, path: &str, body: impl AsRef<[u8]>) -> Reply {
        let bytes = request(method, path, &self.token, body.as_ref());
        exchange(self.plan.port, &bytes, false).await
    }

    async fn create(&self, body: impl AsRef<[u8]>) -> Reply {
        self.send("POST", "/api/v1/widgets", body).await
    }

    async fn raw(&self, bytes: impl AsRef<[u8]>) -> Reply {
        exchange(self.plan.port, bytes.as_ref(), false).await
    }

    /// All wrong responses are reported at the end, not only the first.
    fn check(&mut self, what: &str, reply: &Reply, right: Right) {
        let (status, field, message) = right;
        let id = reply.header("x-request-id");
        let fits = reply.status == Some(status)
            && reply.field() == field
            && !reply.message().is_empty()
            && reply.message().contains(message)
            && id.is_some_and(|id| reply.body["error"]["request_id"] == id);
        self.expect(what, reply, fits);
    }

    fn expect(&mut self, what: &str, reply: &Reply, fits: bool) {
        self.cases += 1;
        if !fits {
            self.faults.push(format!("{what}: {:?}, {}", reply.status, reply.body));
        }
    }

    /// The server is as well as before, and there is the one widget that it took.
    async fn end(mut self, names: &[&str]) {
        assert!(self.faults.is_empty(), "wrong answers:\n{}", self.faults.join("\n"));
        rest(&self.client).await;
        assert_eq!(self.client.read("/api/v1/self/readiness").await["status"], "success");
        let found = self.client.read("/api/v1/objects?kind=widget&deleted=true").await;
        let found: Vec<&serde_json::Value> = found["objects"].as_array().unwrap().iter().collect();
        let mut there: Vec<&str> = found.iter().map(|o| o["name"].as_str().unwrap()).collect();
        let mut due = [&["there"], names].concat();
        there.sort_unstable();
        due.sort_unstable();
        assert_eq!(there, due);
        for object in found {
            assert_eq!((&object["phase"], &object["observed"]), (&json!("ready"), &json!(1)));
        }
        self.server.signal("TERM");
        assert_eq!(self.server.exits().code(), Some(0));
        let log = self.plan.log();
        assert!(!log.contains("panicked") && !log.contains("ERROR"), "{log}");
        println!("{} cases, each with its clear answer; the server is well", self.cases);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_bodies_are_refused_by_their_field() {
    let mut world = World::new().await;
    let deep = format!("{}1{}", r#"{"labels":"#.repeat(50_000), "}".repeat(50_000));
    let long = json!({"name": "x".repeat(256)}).to_string();
    let many =
        json!({"name": "n", "depends_on": vec![format!("widget/{}", world.id); 33]}).to_string();
    let table: [(&str, &[u8], Right); 31] = [
        ("nothing", b"", (400, Some("name"), "is missing")),
        ("no JSON", b"hello", (400, Some("body"), "is not JSON")),
        ("cut off", br#"{"name": "a"#, (400, Some("body"), "is cut off")),
        ("two values", br#"{"name":"a"} {}"#, (400, Some("body"), "has more after")),
        ("no UTF-8", b"{\"name\":\"\xff\xfe\"}", (400, Some("body"), "is not UTF-8 from byte 9")),
        ("half a pair", br#"{"name":"\ud800"}"#, (400, Some("body"), "is not JSON")),
        ("a list", b"[]", (400, Some("body"), "expected struct")),
        ("a string", br#""name""#, (400, Some("body"), "expected struct")),
        ("null", b"null", (400, Some("body"), "expected struct")),
        ("no name", b"{}", (400, Some("name"), "is missing")),
        ("a number", br#"{"name":7}"#, (400, Some("name"), "expected a string")),
        ("null name", br#"{"name":null}"#, (400, Some("name"), "expected a string")),
        ("a text", br#"{"name":"n","size":"9"}"#, (400, Some("size"), "expected u32")),
        ("negative", br#"{"name":"n","size":-1}"#, (400, Some("size"), "expected u32")),
        ("a fraction", br#"{"name":"n","size":1.5}"#, (400, Some("size"), "expected u32")),
        ("huge", br#"{"name":"n","size":1e400}"#, (400, Some("body"), "out of range")),
        ("too large", br#"{"name":"n","size":4294967296}"#, (400, Some("size"), "expected u32")),
        ("in depth", br#"{"name":"n","labels":{"a":{}}}"#, (400, Some("labels.a"), "a string")),
        ("misspelt", br#"{"nmae":"n"}"#, (400, Some("nmae"), "did you mean `name`?")),
        ("unknown", br#"{"name":"n","zzz":1}"#, (400, Some("zzz"), "there are: name, desc")),
        ("twice", br#"{"name":"a","name":"b"}"#, (400, Some("name"), "is there twice")),
        ("deep", deep.as_bytes(), (400, Some("labels.labels"), "expected a string")),
        ("no key", br#"{"name":"n","depends_on":["x"]}"#, (400, Some("depends_on[0]"), "kind/id")),
        (
            "a path",
            br#"{"name":"n","depends_on":["widget/../x"]}"#,
            (400, Some("depends_on[0]"), "kind/id"),
        ),
        (
            "not there",
            br#"{"name":"n","depends_on":["widget/x"]}"#,
            (400, Some("depends_on"), "does not exist"),
        ),
        ("too many", many.as_bytes(), (400, Some("depends_on"), "more than 32")),
        ("empty name", br#"{"name":" "}"#, (400, Some("name"), "must not be empty")),
        ("long name", long.as_bytes(), (400, Some("name"), "at most 255")),
        ("NUL", br#"{"name":"a\u0000b"}"#, (400, Some("body"), "NUL")),
        ("right to left", "{\"name\":\"a\u{202e}b\"}".as_bytes(), (400, Some("name"), "U+202E")),
        ("a mark", "{\"name\":\"a\u{200f}b\"}".as_bytes(), (400, Some("name"), "U+200F")),
    ];
    for (what, body, right) in table {
        world.check(what, &world.create(body).await, right);
    }
    let emoji = "👩‍🚀 العربية ☕";
    let reply = world.create(json!({"name": emoji, "labels": {"שלום": "🎉"}}).to_string()).await;
    world.expect("any script", &reply, reply.status == Some(202) && reply.body["name"] == emoji);
    let again = world.create(json!({ "name": emoji }).to_string()).await;
    world.check("the same name", &again, (409, None, ""));
    world.end(&[emoji]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_addresses_and_queries_are_refused_by_their_field() {
    let mut world = World::new().await;
    let there = format!("/api/v1/widgets/{}", world.id);
    let table: [(&str, &str, Right); 32] = [
        ("GET", "/api/v1/objects/widget/%2e%2e%2fetc%2fpasswd", (400, Some("key"), "kind/id")),
        ("GET", "/api/v1/objects/widget/..%2f..%2fmainstay.db", (400, Some("key"), "kind/id")),
        ("GET", "/api/v1/objects/widget/..", (400, Some("key"), "kind/id")),
        ("GET", "/api/v1/objects/widget/%2e", (400, Some("key"), "kind/id")),
        ("GET", "/api/v1/objects/widget/a%00b", (400, Some("key"), "kind/id")),
        ("GET", "/api/v1/objects/widget/%ff", (400, Some("path"), "UTF-8")),
        ("GET", "/api/v1/objects/wid%20get/a", (400, Some("key"), "kind/id")),
        ("GET", "/api/v1/objects/widget/none", (404, None, "widget/none does not exist")),
        ("GET", "/api/v1/objects/../../etc/passwd", (404, None, "does not exist")),
        ("DELETE", "/api/v1/widgets/%2e%2e%2fx", (400, Some("key"), "kind/id")),
        ("DELETE", "/api/v1/widgets/..", (400, Some("key"), "kind/id")),
        ("DELETE", "/api/v1/widgets/%ff", (400, Some("path"), "UTF-8")),
        ("DELETE", "/api/v1/widgets/none", (404, None, "widget/none does not exist")),
        ("GET", "/api/v1/objects?page=-1", (400, Some("page"), "`page` is not a field here")),
        ("GET", "/api/v1/objects?limit=0", (400, Some("limit"), "must be 1 to 500")),
        ("GET", "/api/v1/objects?limit=-1", (400, Some("limit"), "whole number, 0 or more")),
        ("GET", "/api/v1/objects?limit=501", (400, Some("limit"), "must be 1 to 500")),
        ("GET", "/api/v1/objects?limit=99999999999999999999", (400, Some("limit"), "too large")),
        ("GET", "/api/v1/objects?limit=ten", (400, Some("limit"), "whole number")),
        ("GET", "/api/v1/objects?after=x", (400, Some("after"), "number")),
        ("GET", "/api/v1/objects?label=x", (400, Some("label"), "KEY=VALUE")),
        ("GET", "/api/v1/objects?name=a%00b", (400, Some("name"), "NUL")),
        ("GET", "/api/v1/objects?limt=5", (400, Some("limt"), "did you mean `limit`?")),
        ("GET", "/api/v1/events?after=-1", (400, Some("after"), "number of an event")),
        ("GET", "/api/v1/events?wait_s=61", (400, Some("wait_s"), "at most 60")),
        ("GET", "/api/v1/audit?after=1&before=2", (400, Some("before"), "combined")),
        ("GET", "/api/v1/work?state=idle", (400, Some("state"), "`idle` is not a value here")),
        ("GET", "/api/v1/search?q=x&limit=0", (400, Some("limit"), "must be 1 to")),
        ("GET", "/nowhere", (404, None, "/nowhere does not exist")),
        ("GET", "/api/v2/objects", (404, None, "does not exist")),
        ("PUT", &there, (405, None, "PUT is not possible here")),
        ("BREW", "/api/v1/objects", (405, None, "BREW is not possible here")),
    ];
    for (method, path, right) in table {
        world.check(&format!("{method} {path}"), &world.send(method, path, "").await, right);
    }
    for path in ["/api/v1/objects?after=-1", "/api/v1/audit?after=-9223372036854775808"] {
        let reply = world.send("GET", path, "").await;
        world.expect(path, &reply, reply.status == Some(200));
    }
    world.end(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_tokens_are_refused_and_say_why() {
    let mut world = World::new().await;
    let other = tempfile::tempdir().unwrap();
    let stranger = Plan::new(env!("CARGO_BIN_EXE_e2e"), other.path());
    let made = |plan: &Plan, args: &[&str]| {
        let ran = plan.run(&[&["token", "--role", "admin-full"], args].concat());
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        ran.stdout.trim().to_owned()
    };
    let parts: Vec<&str> = world.token.split('.').collect();
    let header = |json: &str| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(json);
    let (none, hs) = (header(r#"{"alg":"none"}"#), header(r#"{"alg":"HS256","typ":"JWT"}"#));
    let same_url = ["--set", &format!("http.public_url={}", world.plan.url())];
    let mut flipped = world.token.clone().into_bytes();
    let last = flipped.len() - 10;
    flipped[last] = if flipped[last] == b'A' { b'B' } else { b'A' };
    let tokens = [
        ("expired", made(&world.plan, &["--for", "0s"]), "expired at"),
        ("of another issuer", made(&stranger, &[]), "this server trusts"),
        ("of a key that is not ours", made(&stranger, &same_url), ""),
        ("unsigned", format!("{none}.{}.", parts[1]), ""),
        ("unsigned, with a signature", format!("{none}.{}.{}", parts[1], parts[2]), ""),
        ("with a shared secret", format!("{hs}.{}.{}", parts[1], parts[2]), ""),
        ("with a wrong signature", String::from_utf8(flipped).unwrap(), "signature"),
        ("for refreshing", made(&world.plan, &["--offline"]), ""),
        ("garbage", "garbage".into(), ""),
        ("dots", "..".into(), ""),
        ("long", "a.".repeat(10_000), ""),
    ];
    for (what, token, message) in &tokens {
        for (method, path) in [("GET", "/api/v1/objects"), ("POST", "/api/v1/widgets")] {
            let bytes = request(method, path, token, br#"{"name":"stolen"}"#);
            let reply = world.raw(&bytes).await;
            world.check(what, &reply, (401, None, message));
            world.expect(what, &reply, reply.header("www-authenticate").is_some());
        }
    }
    for header in ["", "authorization: Basic dGVzczp0\r\n", "authorization: Bearer\r\n"] {
        let bytes =
            format!("GET /api/v1/work HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{header}\r\n");
        let reply = world.raw(bytes).await;
        world.check(header, &reply, (401, None, "a bearer token is needed"));
    }
    let user = world.plan.run(&["token", "--subject", "bob"]).stdout;
    let reply = world.raw(request("GET", "/api/v1/audit", user.trim(), b"")).await;
    world.check("of someone without the role", &reply, (403, None, "bob has no role"));
    world.end(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_are_too_large_broken_or_never_end_are_refused_in_time() {
    let mut world = World::new().await;
    let name = |bytes: usize| format!(r#"{{"name":"{}"}}"#, "x".repeat(bytes));
    let large = world.create(name(100 << 20)).await;
    world.check("100 MB", &large, (413, None, "larger than 1048576 bytes"));
    let mut chunked = world.head("transfer-encoding: chunked");
    for _ in 0..1600 {
        chunked.extend(format!("10000\r\n{}\r\n", "x".repeat(0x10000)).bytes());
    }
    let reply = world.raw(&chunked).await;
    world.check(
        "100 MB whose length is not said",
        &reply,
        (413, None, "larger than 1048576 bytes"),
    );
    println!("100 MB: refused after {:?}; unannounced: {:?}", large.took, reply.took);

    let get = "GET /api/v1/objects HTTP/1.1\r\nhost: x\r\nconnection: close\r\n";
    let many = format!("{get}{}\r\n", "a: b\r\n".repeat(1_000_000));
    let bare = [
        ("a million headers", many, 431),
        ("an endless header", format!("{get}a: {}\r\n\r\n", "b".repeat(1 << 20)), 431),
        ("an endless address", format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(1 << 20)), 431),
        ("nonsense", "\0\u{1}nonsense\r\n\r\n".into(), 400),
        ("two lengths", format!("{get}content-length: 5\r\ncontent-length: 6\r\n\r\n12345"), 400),
        ("a length that is none", format!("{get}content-length: -5\r\n\r\n"), 400),
        ("a header of bytes", format!("{get}a\u{7f}b: c\r\n\r\n"), 400),
    ];
    for (what, bytes, status) in bare {
        let reply = world.raw(bytes).await;
        world.expect(what, &reply, reply.status == Some(status));
    }
    let wide = format!("{get}a: {}\r\n\r\n", "b".repeat(40 << 10));
    let reply = world.raw(wide).await;
    world.check("wide headers", &reply, (400, Some("headers"), "larger than 32768"));

    let cut = [world.head("content-length: 100"), br#"{"name":"half"#.to_vec()].concat();
    let reply = exchange(world.plan.port, &cut, true).await;
    let gone = reply.status.is_none();
    world.expect("a body that breaks off", &reply, gone || reply.field() == Some("body"));
    world.check(
        "a body that stops",
        &world.raw(&cut).await,
        (400, Some("body"), "nothing of it came for"),
    );
    let broken = [world.head("transfer-encoding: chunked"), b"5\r\n{\"nam\r\nzz\r\n".to_vec()];
    let reply = world.raw(broken.concat()).await;
    world.check("a broken chunk", &reply, (400, Some("body"), "complete"));
    for start in ["", "P", "GET /api/v1/objects HTTP/1.1\r\nhost:"] {
        let reply = world.raw(start).await;
        world.expect(start, &reply, matches!(reply.status, None | Some(408)));
    }
    let typed = world.head("content-length: 2\r\ncontent-type: text/plain");
    let text =
        String::from_utf8(typed).unwrap().replacen("content-type: application/json\r\n", "", 1);
    let reply = world.raw(text + "{}").await;
    world.check("plain text", &reply, (400, Some("content-type"), "must be application/json"));
    world.end(&[]).await;
}

impl World {
    /// The head of a creation, with more headers.
    fn head(&self, more: &str) -> Vec<u8> {
        let token = &self.token;
        format!(
            "POST /api/v1/widgets HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\
             connection: close\r\ncontent-type: application/json\r\n{more}\r\n\r\n"
        )
        .into_bytes()
    }
}
