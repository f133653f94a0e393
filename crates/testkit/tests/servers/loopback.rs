//! Nothing that was started can be reached from elsewhere.

use servers::{Cache, Run, listeners};

#[test]
fn every_server_listens_on_loopback_alone() {
    let cache = Cache::of_user().unwrap();
    let mut places = Run::kept(&cache).places().unwrap();
    if let Ok(dir) = std::env::var("MAINSTAY_TEST_RUN") {
        places.extend(Run::at(&cache, dir.as_ref()).places().unwrap());
    }
    for place in places {
        let processes = place.processes().unwrap_or_default();
        let pids: Vec<u32> = processes.iter().flat_map(|process| process.family()).collect();
        let outside: Vec<_> =
            listeners(&pids).into_iter().filter(|address| !address.ip().is_loopback()).collect();
        assert!(outside.is_empty(), "{} listens on {outside:?}", place.server.name);
    }
}
