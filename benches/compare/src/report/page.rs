//! The folder of a report: a page in Markdown, its charts, and the raw numbers.
//!
//! The page is written anew after each section, so that a run that is broken off leaves what it
//! has found. Files of the same names are replaced, and charts of a section that is written again
//! are removed first: a folder never shows an old chart on a new page.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;

use super::{Block, Section, chart};
use crate::environment::Environment;
use crate::experiment::Plan;
use crate::progress::clock;
use crate::spread::ENOUGH_ROUNDS;
use crate::suite::Suite;

#[derive(Debug)]
pub(crate) struct Page {
    folder: PathBuf,
    environment: Environment,
    plan: Plan,
    /// Titles and questions.
    contents: Vec<(String, &'static str)>,
    body: String,
}

impl Page {
    /// Makes the folder.
    pub(crate) fn create(
        folder: PathBuf,
        environment: Environment,
        plan: Plan,
    ) -> Result<Self, Box<dyn Error>> {
        let folder_error = |error| format!("{}: {error}", folder.display());
        fs::create_dir_all(&folder).map_err(folder_error)?;
        Ok(Self { folder, environment, plan, contents: Vec::new(), body: String::new() })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// What stands above all sections but the list of them.
    pub(crate) fn head(&self) -> String {
        let (rounds, millis) = (self.plan.cycles, self.plan.window.as_millis());
        let fresh_every = self.plan.fresh_every;
        let starts = rounds.div_ceil(fresh_every);
        let warning = match rounds {
            ENOUGH_ROUNDS.. => "",
            _ => "**A first look: so few rounds say little. Not for the record.**\n\n",
        };
        format!(
            "# epoll-group beside others\n\n{warning}{}\n\
             All servers of a comparison are alive together, each a process of its own, and are \
             loaded in turn in windows of {millis} ms, {rounds} rounds; every answer is checked. \
             Numbers are medians of the windows. A ratio is taken round by round: `1.04 \
             [0.97–1.09]` is its median and the interval that holds the true median with at least \
             95 % confidence (5 rounds: their range, 93.75 %), by order statistics, if rounds are \
             independent. A **tie** is a ratio whose interval contains 1.00: the two cannot be told \
             apart.\n\n\
             Two things to keep in mind. Servers and connections are started anew every \
             {fresh_every} rounds: rounds of one start share how connections have fallen to threads, \
             so where that matters, with few connections above all, {starts} starts say less than \
             {rounds} independent rounds would. And loads are closed: who waits for an answer does \
             not ask meanwhile, so a server that stalls is asked less often, and its high quantiles \
             look better than those of an open load would.\n",
            self.environment
        )
    }

    /// Writes the files of a section and the page with it; returns what the page says.
    pub(crate) fn add(
        &mut self,
        suite: &Suite,
        section: &Section,
        took: Duration,
    ) -> Result<String, Box<dyn Error>> {
        self.remove_charts(section.name)?;
        let mut text = format!("## {}\n\n*{}*\n\n", section.title, suite.question);
        for block in &section.blocks {
            match block {
                Block::Text(paragraph) => text += paragraph.trim(),
                Block::Table(table) => text += table.to_string().trim_end(),
                Block::Chart(chart) => {
                    let file = format!("{}-{}.svg", section.name, chart.name);
                    self.write(&file, &chart::svg(chart)?)?;
                    text += &format!("![{}]({file})", chart.title);
                }
            }
            text += "\n\n";
        }
        let raw = json!({
            "environment": self.environment,
            "plan": self.plan,
            "suite": section.name,
            "raw": section.raw,
        });
        let file = format!("{}.json", section.name);
        self.write(&file, &(serde_json::to_string(&raw)? + "\n"))?;
        text += &format!("Took {}; raw numbers: [{file}]({file}).\n", clock(took));
        self.append(section.title.clone(), suite.question, &text)?;
        Ok(text)
    }

    /// A section that could not be measured has its place all the same.
    pub(crate) fn add_failure(
        &mut self,
        suite: &Suite,
        error: &dyn Error,
    ) -> Result<String, Box<dyn Error>> {
        let text = format!("## {}\n\n*{}*\n\nFailed: {error}\n", suite.name, suite.question);
        self.append(suite.name.to_owned(), suite.question, &text)?;
        Ok(text)
    }

    fn append(
        &mut self,
        title: String,
        question: &'static str,
        text: &str,
    ) -> Result<(), Box<dyn Error>> {
        self.contents.push((title, question));
        self.body += &format!("\n{text}");
        let line = |(title, question): &(String, &str)| {
            format!("- [{title}](#{}): {question}\n", anchor(title))
        };
        let contents: String = self.contents.iter().map(line).collect();
        self.write("README.md", &format!("{}\n{contents}{}", self.head(), self.body))
    }

    fn write(&self, file: &str, text: &str) -> Result<(), Box<dyn Error>> {
        let path = self.folder.join(file);
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()).into())
    }

    fn remove_charts(&self, section: &str) -> Result<(), Box<dyn Error>> {
        let prefix = format!("{section}-");
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with(&prefix) && name.ends_with(".svg") {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }
}

/// What a heading is linked by: lower case, blanks as hyphens, no other signs.
fn anchor(title: &str) -> String {
    let kept = title.to_lowercase();
    let kept = kept.chars().filter(|&c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_are_linked_as_their_readers_do() {
        assert_eq!(anchor("Select 1: old, new"), "select-1-old-new");
    }
}
