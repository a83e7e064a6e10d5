//! Expands a parsed template.

use super::TemplateData;
use super::parse::{Pipeline, TemplateCommand, TemplateNode, TemplateOperand};
use super::value::TemplateValue;

/// The maximum number of nodes and operands that one expansion evaluates.
const STEPS_MAX: usize = 100_000;
/// The maximum size of a result, and of all intermediate texts.
pub(super) const BYTES_MAX: usize = 16 << 10;
const INTERMEDIATE_BYTES_MAX: usize = 4 << 20;

/// One expansion of a template.
pub(super) struct Expansion<'a> {
    pub(super) data: &'a TemplateData<'a>,
    variables: Vec<(String, TemplateValue)>,
    out: String,
    steps: usize,
    bytes: usize,
}

/// How a list of nodes ended.
#[derive(PartialEq)]
enum ControlFlow {
    Next,
    Break,
    Continue,
}

impl<'a> Expansion<'a> {
    pub(super) fn new(data: &'a TemplateData<'a>) -> Expansion<'a> {
        let variables = [
            ("", TemplateValue::Root),
            ("labels", TemplateValue::Labels(data.labels.clone())),
            (
                "externalLabels",
                TemplateValue::Labels(data.external_labels.clone()),
            ),
            (
                "externalURL",
                TemplateValue::Text(data.external_url.to_owned()),
            ),
            ("value", TemplateValue::Float(data.value)),
        ];
        Expansion {
            data,
            variables: variables
                .map(|(name, value)| (name.to_owned(), value))
                .into(),
            out: String::new(),
            steps: 0,
            bytes: 0,
        }
    }

    pub(super) fn run(mut self, nodes: &[TemplateNode]) -> Result<String, String> {
        self.nodes(nodes, &TemplateValue::Root)?;
        Ok(self.out)
    }

    fn step(&mut self) -> Result<(), String> {
        self.steps += 1;
        if self.steps > STEPS_MAX {
            return Err("the template takes too many steps".to_owned());
        }
        Ok(())
    }

    fn write(&mut self, text: &str) -> Result<(), String> {
        self.out.push_str(text);
        if self.out.len() > BYTES_MAX {
            return Err(format!("the text exceeds {BYTES_MAX} bytes"));
        }
        Ok(())
    }

    fn nodes(
        &mut self,
        nodes: &[TemplateNode],
        dot: &TemplateValue,
    ) -> Result<ControlFlow, String> {
        for node in nodes {
            self.step()?;
            let scope = self.variables.len();
            let flow = match node {
                TemplateNode::Text(text) => {
                    self.write(text)?;
                    continue;
                }
                TemplateNode::Action(pipeline) => {
                    let value = self.pipeline(pipeline, dot)?;
                    if pipeline.variables.is_empty() {
                        let text = match &value {
                            TemplateValue::Nil => "<no value>".to_owned(),
                            value => value.display(),
                        };
                        self.write(&text)?;
                    }
                    // A variable lives until the end of the block that declares it.
                    continue;
                }
                TemplateNode::If {
                    condition,
                    then,
                    otherwise,
                } => {
                    let value = self.pipeline(condition, dot)?;
                    let branch = if value.is_true() { then } else { otherwise };
                    self.nodes(branch, dot)?
                }
                TemplateNode::With {
                    value,
                    body,
                    otherwise,
                } => {
                    let value = self.pipeline(value, dot)?;
                    if value.is_true() {
                        self.nodes(body, &value)?
                    } else {
                        self.nodes(otherwise, dot)?
                    }
                }
                TemplateNode::Range {
                    list,
                    body,
                    otherwise,
                } => self.range(list, (body, otherwise), dot)?,
                TemplateNode::Break => return Ok(ControlFlow::Break),
                TemplateNode::Continue => return Ok(ControlFlow::Continue),
            };
            self.variables.truncate(scope);
            if flow != ControlFlow::Next {
                return Ok(flow);
            }
        }
        Ok(ControlFlow::Next)
    }

    fn range(
        &mut self,
        list: &Pipeline,
        (body, otherwise): (&[TemplateNode], &[TemplateNode]),
        dot: &TemplateValue,
    ) -> Result<ControlFlow, String> {
        let scope = self.variables.len();
        let value = self.value_of(list, dot)?;
        let items: Vec<(TemplateValue, TemplateValue)> = match value {
            TemplateValue::List(items) => (0..).map(TemplateValue::Int).zip(items).collect(),
            TemplateValue::Labels(labels) => labels
                .iter()
                .map(|(name, value)| {
                    let text = |text: &str| TemplateValue::Text(text.to_owned());
                    (text(name), text(value))
                })
                .collect(),
            other => return Err(format!("range can't iterate over {}", other.display())),
        };
        if items.is_empty() {
            return self.nodes(otherwise, dot);
        }
        for (key, item) in items {
            self.variables.truncate(scope);
            match &list.variables[..] {
                [] => {}
                [only] => self.set(list, only, item.clone()),
                [first, second, ..] => {
                    self.set(list, first, key);
                    self.set(list, second, item.clone());
                }
            }
            if self.nodes(body, &item)? == ControlFlow::Break {
                break;
            }
        }
        Ok(ControlFlow::Next)
    }

    /// Evaluates a pipeline and sets its variable.
    fn pipeline(
        &mut self,
        pipeline: &Pipeline,
        dot: &TemplateValue,
    ) -> Result<TemplateValue, String> {
        let value = self.value_of(pipeline, dot)?;
        for name in &pipeline.variables {
            self.set(pipeline, name, value.clone());
        }
        Ok(value)
    }

    fn set(&mut self, pipeline: &Pipeline, name: &str, value: TemplateValue) {
        let existing = { self.variables.iter_mut().rev() }.find(|(known, _)| known == name);
        match existing {
            Some(variable) if pipeline.is_assignment => variable.1 = value,
            _ => self.variables.push((name.to_owned(), value)),
        }
    }

    fn value_of(
        &mut self,
        pipeline: &Pipeline,
        dot: &TemplateValue,
    ) -> Result<TemplateValue, String> {
        let mut piped = None;
        for command in &pipeline.commands {
            let value = self.command(command, piped.take(), dot)?;
            self.bytes += value.bytes();
            if self.bytes > INTERMEDIATE_BYTES_MAX {
                return Err("the template uses too much memory".to_owned());
            }
            piped = Some(value);
        }
        Ok(piped.unwrap_or(TemplateValue::Nil))
    }

    fn command(
        &mut self,
        command: &TemplateCommand,
        piped: Option<TemplateValue>,
        dot: &TemplateValue,
    ) -> Result<TemplateValue, String> {
        let TemplateOperand::Function(function) = &command[0] else {
            return self.operand(&command[0], dot);
        };
        // `and` and `or` evaluate no more arguments than they need.
        if let Some(stop_at) = function.stops_at() {
            let mut last = TemplateValue::Nil;
            for operand in &command[1..] {
                last = self.operand(operand, dot)?;
                if last.is_true() == stop_at {
                    return Ok(last);
                }
            }
            return Ok(piped.unwrap_or(last));
        }
        let mut arguments = Vec::with_capacity(command.len());
        for operand in &command[1..] {
            arguments.push(self.operand(operand, dot)?);
        }
        arguments.extend(piped);
        function.call(self.data, arguments)
    }

    fn operand(
        &mut self,
        operand: &TemplateOperand,
        dot: &TemplateValue,
    ) -> Result<TemplateValue, String> {
        self.step()?;
        match operand {
            TemplateOperand::Dot => Ok(dot.clone()),
            TemplateOperand::Nil => Ok(TemplateValue::Nil),
            TemplateOperand::Bool(value) => Ok(TemplateValue::Bool(*value)),
            TemplateOperand::Int(value) => Ok(TemplateValue::Int(*value)),
            TemplateOperand::Float(value) => Ok(TemplateValue::Float(*value)),
            TemplateOperand::Text(text) => Ok(TemplateValue::Text(text.clone())),
            TemplateOperand::Fields(names) => self.fields(dot.clone(), names),
            TemplateOperand::Variable(name, names) => {
                let mut variables = self.variables.iter().rev();
                let variable = variables.find(|(known, _)| known == name);
                let value = variable.map_or(TemplateValue::Nil, |(_, value)| value.clone());
                self.fields(value, names)
            }
            TemplateOperand::Function(function) => function.call(self.data, Vec::new()),
            TemplateOperand::Nested(pipeline, names) => {
                let value = self.value_of(pipeline, dot)?;
                self.fields(value, names)
            }
        }
    }

    fn fields(&self, value: TemplateValue, names: &[String]) -> Result<TemplateValue, String> {
        names.iter().try_fold(value, |value, name| {
            let data = self.data;
            match (&value, name.as_str()) {
                (TemplateValue::Labels(labels), name) => {
                    Ok(TemplateValue::Text(labels.get(name).to_owned()))
                }
                (TemplateValue::Root, "Labels") => Ok(TemplateValue::Labels(data.labels.clone())),
                (TemplateValue::Root, "ExternalLabels") => {
                    Ok(TemplateValue::Labels(data.external_labels.clone()))
                }
                (TemplateValue::Root, "ExternalURL") => {
                    Ok(TemplateValue::Text(data.external_url.to_owned()))
                }
                (TemplateValue::Root, "Value") => Ok(TemplateValue::Float(data.value)),
                (TemplateValue::Sample(sample), "Labels") => {
                    Ok(TemplateValue::Labels(sample.labels.clone()))
                }
                (TemplateValue::Sample(sample), "Value") => Ok(TemplateValue::Float(sample.value)),
                (other, name) => Err(format!(
                    "can't evaluate field {name} in type {}",
                    other.go_type()
                )),
            }
        })
    }
}
