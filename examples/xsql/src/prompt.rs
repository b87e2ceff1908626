//! Lines from a terminal, edited and remembered. Pasted lines come as one text.

use std::error::Error;
use std::io::Write;
use std::path::Path;

use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{Config, Editor};

use crate::interrupt::Running;
use crate::shell::{Outcome, Shell};
use crate::splitter::{self, Inside, Splitter};

/// Lines that are remembered.
const REMEMBERED: usize = 10_000;

/// Reads and runs statements until the user leaves. `own`: the server is ours.
///
/// # Errors
/// The terminal or the history cannot be used.
pub(crate) fn run(
    shell: &mut Shell<impl Write>,
    running: &Running,
    history: Option<&Path>,
    own: bool,
) -> Result<(), Box<dyn Error>> {
    let config = Config::builder().max_history_size(REMEMBERED)?.auto_add_history(false).build();
    let mut editor = Editor::<(), FileHistory>::with_config(config)?;
    if let Some(file) = history.filter(|file| file.exists()) {
        editor.load_history(file)?;
    }
    shell.greet(own)?;
    running.prompts();
    let mut splitter = Splitter::default();
    // Text typed since the last statement ended.
    let mut entry = String::new();
    loop {
        let lines = match editor.readline(prompt(&splitter)) {
            Ok(lines) => lines,
            // Ctrl-C forgets what is typed, Ctrl-D leaves.
            Err(ReadlineError::Interrupted) => {
                splitter.clear();
                entry.clear();
                continue;
            }
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(error.into()),
        };
        splitter::remember(&mut entry, &lines);
        let inputs = splitter.push_lines(&lines);
        if splitter.is_empty() {
            if !entry.trim().is_empty() {
                editor.add_history_entry(entry.as_str())?;
                // A SIGTERM leaves no time to save. If this fails, the end tries again.
                if let Some(file) = history {
                    let _ = editor.append_history(file);
                }
            }
            entry.clear();
        }
        let mut quit = false;
        for input in inputs {
            match shell.run(&input)? {
                Outcome::Failed(error) => shell.say(&error)?,
                Outcome::Quit => {
                    quit = true;
                    break;
                }
                _ => {}
            }
        }
        if quit {
            break;
        }
    }
    if let Some(file) = history {
        editor.append_history(file)?;
    }
    Ok(())
}

/// Tells what is still open.
fn prompt(splitter: &Splitter) -> &'static str {
    match splitter.inside() {
        Inside::Plain if splitter.is_empty() => "xsql> ",
        Inside::Plain => "   -> ",
        Inside::Quotes('\'') => "   '> ",
        Inside::Quotes('"') => "   \"> ",
        Inside::Quotes(_) => "   `> ",
        Inside::Comment => "  /*> ",
    }
}
