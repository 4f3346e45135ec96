//! The server: `noren-embedding-server --model DIR`.

use clap::Parser;
use noren_embedding_server::http::{listen, routes};
use noren_embedding_server::queue::{Limits, Queue};
use noren_models::embed::Embedder;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

/// Serves embeddings of texts over HTTP; texts of several requests are packed into one pass of the model.
#[derive(Parser)]
struct Arguments {
    /// Folder of a sentence-transformers model
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    /// Address and port to listen on
    #[arg(long, default_value = "127.0.0.1:8080")]
    address: SocketAddr,
    /// Maximum number of tokens that the model reads in one pass
    #[arg(long, default_value_t = 8192, value_parser = clap::value_parser!(u32).range(1..))]
    batch_tokens: u32,
    /// Maximum number of tokens of waiting requests; a request above this limit gets the status 503
    #[arg(long, default_value_t = 262_144, value_parser = clap::value_parser!(u32).range(1..))]
    waiting_tokens: u32,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = Arguments::parse();
    let embedder = Arc::new(Embedder::load(&arguments.model)?);
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(serve(embedder, &arguments))
}

async fn serve(embedder: Arc<Embedder>, arguments: &Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let limits =
        Limits { batch_tokens: arguments.batch_tokens as usize, waiting_tokens: arguments.waiting_tokens as usize };
    let (queue, thread) = Queue::start(Arc::clone(&embedder), limits);
    let listener = listen(arguments.address)?;
    println!("listening on http://{}: POST /embed, GET /health; Ctrl-C ends the server", listener.local_addr()?);
    let stop = async {
        let _ = tokio::signal::ctrl_c().await;
        println!("the server stops after the requests that it has received are answered ...");
    };
    axum::serve(listener, routes(embedder, queue.clone())).with_graceful_shutdown(stop).await?;
    queue.close();
    let _ = tokio::task::spawn_blocking(move || thread.join()).await;
    Ok(())
}
