//! `noren serve`: starts the explorer of noren-explorer, with the model of the text view.

#[cfg(feature = "models")]
use crate::commands::model::hub;
use crate::failure::{Failure, Result};
use crate::output::{DIM, STRONG, Screen, paint};
use crate::verdict::Verdict;
use clap::Args;
use noren_explorer::{Options, Texts};
use std::net::TcpListener;
#[cfg(feature = "models")]
use std::path::PathBuf;
use std::process::{Command, Stdio};

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ServeArgs {
    /// Port on 127.0.0.1; 0 selects a free port
    #[arg(long, value_name = "PORT", default_value_t = 8347)]
    port: u16,
    /// Open the page in the browser
    #[arg(long)]
    open: bool,
    /// Model of the text view: a folder, or a name on the Hugging Face hub, downloaded before the page is served
    /// [default: the small model in this program]
    #[cfg(feature = "models")]
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
    /// Read requests from standard input and answer them: only for the worker processes, which the server starts itself
    #[arg(long, hide = true, value_enum)]
    worker: Option<WorkerKind>,
}

/// The kind of a worker process: the kind of requests that the process answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum WorkerKind {
    /// A worker process that answers requests about masks and has a limit on its memory
    Masks,
    /// A worker process that answers requests about texts
    Model,
}

const EXAMPLES: &str = "\
The page is served to this machine only, works offline and sends no data to other machines. Ctrl-C ends the server. docs/explorer.md describes the limits and the requests.

Examples:
  noren serve --open
  noren serve --port 0
  noren serve --model path/to/model";

pub(crate) fn run(args: &ServeArgs, screen: &mut Screen) -> Result<Verdict> {
    match args.worker {
        Some(WorkerKind::Masks) => noren_explorer::worker(true, None)?,
        Some(WorkerKind::Model) => noren_explorer::worker(false, texts(args))?,
        None => serve(args, screen)?,
    }
    Ok(Verdict::Yes)
}

/// Returns the text view of the explorer, which runs the model of `args` over texts.
#[cfg(feature = "models")]
fn texts(args: &ServeArgs) -> Option<Box<dyn Texts>> {
    Some(Box::new(crate::commands::text::View::new(args.model.clone())))
}

/// Returns `None`: this program was built without models.
#[cfg(not(feature = "models"))]
fn texts(_: &ServeArgs) -> Option<Box<dyn Texts>> {
    None
}

fn serve(args: &ServeArgs, screen: &mut Screen) -> Result<()> {
    let arguments = |kind: &str| ["serve", "--worker", kind].map(String::from).to_vec();
    #[cfg_attr(
        not(feature = "models"),
        expect(
            unused_mut,
            reason = "the variable is changed below, with the argument --model, only if the feature `models` is enabled"
        )
    )]
    let mut text_worker = arguments("model");
    // A model given by name is downloaded before the server starts; the server does not use the network.
    #[cfg(feature = "models")]
    if let Some(model) = &args.model {
        let folder = hub::folder(model, &["tokenizer.json"])?;
        text_worker.extend(["--model".to_string(), folder.display().to_string()]);
    }
    let listener = TcpListener::bind(("127.0.0.1", args.port)).map_err(|e| {
        Failure::new(format!("port {} of 127.0.0.1 cannot be used: {e}", args.port))
            .hint("--port 0 selects a free port")
    })?;
    let port = listener.local_addr()?.port();
    let address = format!("http://127.0.0.1:{port}/");
    screen.line(paint(STRONG, &address))?;
    screen.line(paint(DIM, "the explorer is served at this address, on this machine only; Ctrl-C ends the server"))?;
    if args.open && open_browser(&address).is_err() {
        screen.line(paint(DIM, "no browser could be opened: open the address above"))?;
    }
    Ok(noren_explorer::serve(&listener, &Options::new(arguments("masks"), text_worker))?)
}

/// Opens an address in the browser, with the command of the operating system.
fn open_browser(address: &str) -> std::io::Result<()> {
    let (program, arguments): (&str, &[&str]) = match std::env::consts::OS {
        "macos" => ("open", &[]),
        "windows" => ("cmd", &["/c", "start", ""]),
        _ => ("xdg-open", &[]),
    };
    let mut command = Command::new(program);
    command.args(arguments).arg(address).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // The started command ends by itself and is collected when this program ends.
    command.spawn().map(drop)
}
