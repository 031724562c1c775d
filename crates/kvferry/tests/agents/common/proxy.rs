//! A way to a control port that counts connections and can fall silent.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

pub struct Proxy {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    silent: watch::Sender<bool>,
    _tasks: JoinSet<()>,
}

impl Proxy {
    pub async fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let (silent, hush) = watch::channel(false);
        let mut tasks = JoinSet::new();
        let counter = Arc::clone(&connections);
        tasks.spawn(async move {
            let mut pipes = JoinSet::new();
            loop {
                let (near, _) = listener.accept().await.unwrap();
                counter.fetch_add(1, Ordering::Relaxed);
                let far = TcpStream::connect(target).await.unwrap();
                pipes.spawn(pipe(near, far, hush.clone()));
            }
        });
        Self { address, connections, silent, _tasks: tasks }
    }

    /// The parameters with this way in place of the direct one.
    pub fn through(&self, mut params: Value) -> Value {
        params["remote_host"] = self.address.ip().to_string().into();
        params["remote_port"] = self.address.port().into();
        params
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// From now on every connection stays open and carries nothing.
    pub fn fall_silent(&self) {
        self.silent.send_replace(true);
    }
}

async fn pipe(mut near: TcpStream, mut far: TcpStream, mut hush: watch::Receiver<bool>) {
    tokio::select! {
        _ = copy_bidirectional(&mut near, &mut far) => return,
        _ = hush.wait_for(|silent| *silent) => {}
    }
    std::future::pending::<()>().await;
}
