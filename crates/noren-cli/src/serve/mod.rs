//! `noren serve`: the explorer, a page on this machine.
//!
//! The server (`http`, `routes`, `page`) speaks to the browser and computes nothing. Workers (`worker`, `answer/*`) are processes of
//! this same program that answer one call at a time with a limit on memory; `pool` ends those that take too long. So whatever is
//! asked, the server lives. A mask is known by the hash of what defines it (`store`), and tiles of it never change.

mod answer;
mod http;
mod page;
mod pool;
mod problem;
mod routes;
mod scene;
mod store;
mod wire;
mod worker;

use store::identity;

use crate::Verdict;
use crate::failure::{Failure, Result};
use crate::model::hub;
use crate::output::{DIM, STRONG, Screen, paint};
use clap::Args;
use http::Server;
use pool::Pool;
use std::path::PathBuf;
use std::sync::Arc;
use store::Store;
use tokio::sync::{OnceCell, Semaphore};

/// Workers for masks, whatever the machine has.
const WORKERS: std::ops::RangeInclusive<usize> = 2..=8;

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ServeArgs {
    /// Port on 127.0.0.1; 0 takes any that is free
    #[arg(long, value_name = "PORT", default_value_t = 8347)]
    port: u16,
    /// Open the page in the browser
    #[arg(long)]
    open: bool,
    /// Model of the text view: a folder, or a name on the hub, downloaded before the page is served [default: the small one in
    /// this program]
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
    /// Answer calls from standard input: what the server starts for itself
    #[arg(long, hide = true, value_enum)]
    worker: Option<WorkerKind>,
}

/// What a worker answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum WorkerKind {
    /// Questions about masks, with a limit on memory
    Masks,
    /// Questions about texts
    Model,
}

const EXAMPLES: &str = "\
The page is served to this machine only, works offline and sends nothing anywhere. Ctrl-C ends it.
docs/explorer.md has its limits; /openapi.json describes the questions that it asks.

Examples:
  noren serve --open
  noren serve --port 0
  noren serve --model path/to/model";

pub(crate) fn run(args: &ServeArgs, screen: &mut Screen) -> Result<Verdict> {
    match args.worker {
        Some(kind) => worker::run(kind == WorkerKind::Masks, args.model.clone())?,
        None => {
            // A name is looked for, and downloaded, before anything is served: from then on nothing is asked of anybody.
            let model = args.model.as_deref().map(|model| hub::folder(model, &["tokenizer.json"])).transpose()?;
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
            let runtime = runtime.map_err(|e| Failure::new(format!("the server cannot be started: {e}")))?;
            runtime.block_on(serve(args, model, screen))?;
        }
    }
    Ok(Verdict::Yes)
}

async fn serve(args: &ServeArgs, model: Option<PathBuf>, screen: &mut Screen) -> Result<()> {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", args.port)).await;
    let listener = listener.map_err(|e| {
        Failure::new(format!("port {} of 127.0.0.1 cannot be taken: {e}", args.port))
            .hint("--port 0 takes any that is free")
    })?;
    let port = listener.local_addr().map_err(Failure::Output)?.port();
    let address = format!("http://127.0.0.1:{port}/");
    screen.line(paint(STRONG, &address))?;
    screen.line(paint(DIM, "the explorer, on this machine only; Ctrl-C ends it"))?;
    if args.open && open::that_detached(&address).is_err() {
        screen.line(paint(DIM, "no browser could be opened: open the address above"))?;
    }
    let workers = std::thread::available_parallelism().map_or(2, usize::from).clamp(*WORKERS.start(), *WORKERS.end());
    let arguments = |kind: &str| ["serve", "--worker", kind].map(String::from).to_vec();
    let mut of_model = arguments("model");
    if let Some(model) = &model {
        of_model.extend(["--model".to_string(), model.display().to_string()]);
    }
    let store = Arc::new(Store::default());
    let server = Server {
        masks: Pool::new(arguments("masks"), workers, store.clone()),
        model: Pool::new(of_model, 1, store.clone()),
        store,
        room: Arc::new(Semaphore::new(http::MOST_HELD)),
        speeds: OnceCell::new(),
        workers,
    };
    http::serve(listener, Arc::new(server), port).await.map_err(Failure::Output)
}
