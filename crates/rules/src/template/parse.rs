//! Parses a template into nodes and checks it: functions and variables must exist.

use super::functions::{self, TemplateFunction};
use super::lexer::{ActionToken, Piece, split};

/// The maximum nesting of blocks and parentheses.
const DEPTH_MAX: usize = 32;

/// The variables that every template of a rule may use.
pub(crate) const VARIABLES: [&str; 5] = ["", "labels", "externalLabels", "externalURL", "value"];

#[derive(Debug, Clone)]
pub(crate) enum TemplateNode {
    Text(String),
    /// Writes the value of the pipeline, unless it declares or sets a variable.
    Action(Pipeline),
    If {
        condition: Pipeline,
        then: Vec<TemplateNode>,
        otherwise: Vec<TemplateNode>,
    },
    With {
        value: Pipeline,
        body: Vec<TemplateNode>,
        otherwise: Vec<TemplateNode>,
    },
    Range {
        list: Pipeline,
        body: Vec<TemplateNode>,
        otherwise: Vec<TemplateNode>,
    },
    Break,
    Continue,
}

/// `$a, $b := command | command`.
#[derive(Debug, Clone)]
pub(crate) struct Pipeline {
    pub variables: Vec<String>,
    /// Sets existing variables instead of declaring new ones.
    pub is_assignment: bool,
    pub commands: Vec<TemplateCommand>,
}

/// An operand and its arguments.
pub(crate) type TemplateCommand = Vec<TemplateOperand>;

#[derive(Debug, Clone)]
pub(crate) enum TemplateOperand {
    Dot,
    Nil,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    /// Fields of the dot.
    Fields(Vec<String>),
    /// A variable and fields of it.
    Variable(String, Vec<String>),
    Function(&'static TemplateFunction),
    /// A pipeline in parentheses and fields of its value.
    Nested(Pipeline, Vec<String>),
}

/// Parses a template, or describes what is wrong with it.
pub(crate) fn parse(text: &str) -> Result<Vec<TemplateNode>, String> {
    let mut parser = TemplateParser {
        pieces: split(text)?.into_iter(),
        variables: VARIABLES.iter().map(|name| (*name).to_owned()).collect(),
        depth: 0,
        loops: 0,
    };
    match parser.nodes()? {
        (nodes, BlockEnd::Template) => Ok(nodes),
        (_, BlockEnd::Else(_)) => Err("unexpected {{else}}".to_owned()),
        (_, BlockEnd::End) => Err("unexpected {{end}}".to_owned()),
    }
}

struct TemplateParser {
    pieces: std::vec::IntoIter<Piece>,
    /// The variables in scope.
    variables: Vec<String>,
    depth: usize,
    loops: usize,
}

/// What ended a list of nodes.
enum BlockEnd {
    Template,
    End,
    /// The tokens after `else`.
    Else(Vec<ActionToken>),
}

#[derive(Clone, Copy, PartialEq)]
enum ControlBlock {
    If,
    With,
    Range,
}

impl TemplateParser {
    fn nodes(&mut self) -> Result<(Vec<TemplateNode>, BlockEnd), String> {
        let mut nodes = Vec::new();
        while let Some(piece) = self.pieces.next() {
            let tokens = match piece {
                Piece::Text(text) => {
                    nodes.push(TemplateNode::Text(text));
                    continue;
                }
                Piece::Action(tokens) => tokens,
            };
            let keyword = match tokens.first() {
                Some(ActionToken::Word(word)) => word.as_str(),
                _ => "",
            };
            let rest = || tokens[1..].to_vec();
            match keyword {
                "if" => nodes.push(self.block(ControlBlock::If, rest())?),
                "with" => nodes.push(self.block(ControlBlock::With, rest())?),
                "range" => nodes.push(self.block(ControlBlock::Range, rest())?),
                "end" if tokens.len() == 1 => return Ok((nodes, BlockEnd::End)),
                "else" => return Ok((nodes, BlockEnd::Else(rest()))),
                "break" | "continue" if tokens.len() == 1 => {
                    if self.loops == 0 {
                        return Err(format!("{{{{{keyword}}}}} outside {{{{range}}}}"));
                    }
                    nodes.push(match keyword {
                        "break" => TemplateNode::Break,
                        _ => TemplateNode::Continue,
                    });
                }
                "define" | "template" | "block" => {
                    return Err(format!(
                        "{{{{{keyword}}}}} is not supported in rules: write the text in place"
                    ));
                }
                _ => {
                    let pipeline = self.whole_pipeline(tokens, false)?;
                    nodes.push(TemplateNode::Action(pipeline));
                }
            }
        }
        Ok((nodes, BlockEnd::Template))
    }

    fn block(
        &mut self,
        kind: ControlBlock,
        head: Vec<ActionToken>,
    ) -> Result<TemplateNode, String> {
        self.enter()?;
        let scope = self.variables.len();
        let pipeline = self.whole_pipeline(head, kind == ControlBlock::Range)?;
        let body_scope = self.variables.len();
        self.loops += usize::from(kind == ControlBlock::Range);
        let (body, end) = self.nodes()?;
        self.loops -= usize::from(kind == ControlBlock::Range);
        self.variables.truncate(body_scope);
        let otherwise = match end {
            BlockEnd::Template => return Err("unexpected EOF: missing {{end}}".to_owned()),
            BlockEnd::End => Vec::new(),
            BlockEnd::Else(tokens) => self.otherwise(kind, tokens)?,
        };
        self.variables.truncate(scope);
        self.depth -= 1;
        Ok(match kind {
            ControlBlock::If => TemplateNode::If {
                condition: pipeline,
                then: body,
                otherwise,
            },
            ControlBlock::With => TemplateNode::With {
                value: pipeline,
                body,
                otherwise,
            },
            ControlBlock::Range => TemplateNode::Range {
                list: pipeline,
                body,
                otherwise,
            },
        })
    }

    /// Parses what follows `else`, up to `end`. `else if` is a block of its own and shares the end.
    fn otherwise(
        &mut self,
        kind: ControlBlock,
        tokens: Vec<ActionToken>,
    ) -> Result<Vec<TemplateNode>, String> {
        match (tokens.first(), kind) {
            (None, _) => match self.nodes()? {
                (nodes, BlockEnd::End) => Ok(nodes),
                (_, BlockEnd::Else(_)) => Err("expected end; found {{else}}".to_owned()),
                (_, BlockEnd::Template) => Err("unexpected EOF: missing {{end}}".to_owned()),
            },
            (Some(ActionToken::Word(word)), ControlBlock::If) if word == "if" => {
                Ok(vec![self.block(ControlBlock::If, tokens[1..].to_vec())?])
            }
            (Some(ActionToken::Word(word)), ControlBlock::With) if word == "with" => {
                Ok(vec![self.block(ControlBlock::With, tokens[1..].to_vec())?])
            }
            _ => Err("unexpected text in {{else}}".to_owned()),
        }
    }

    fn enter(&mut self) -> Result<(), String> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(format!(
                "blocks or parentheses nest more than {DEPTH_MAX} deep"
            ));
        }
        Ok(())
    }

    fn whole_pipeline(
        &mut self,
        tokens: Vec<ActionToken>,
        is_range: bool,
    ) -> Result<Pipeline, String> {
        let mut cursor = tokens.into_iter().peekable();
        let pipeline = self.pipeline(&mut cursor, is_range)?;
        match cursor.next() {
            None => Ok(pipeline),
            Some(token) => Err(format!("unexpected {} in an action", describe(&token))),
        }
    }

    fn pipeline(&mut self, tokens: &mut Tokens, is_range: bool) -> Result<Pipeline, String> {
        let (variables, is_assignment) = declared(tokens, is_range)?;
        if is_assignment {
            for name in &variables {
                self.known_variable(name)?;
            }
        }
        let mut commands = vec![self.command(tokens)?];
        while tokens
            .next_if(|token| *token == ActionToken::Pipe)
            .is_some()
        {
            let command = self.command(tokens)?;
            if !matches!(command[0], TemplateOperand::Function(_)) {
                return Err("the right side of | must be a function".to_owned());
            }
            commands.push(command);
        }
        if !is_assignment {
            self.variables.extend(variables.iter().cloned());
        }
        Ok(Pipeline {
            variables,
            is_assignment,
            commands,
        })
    }

    fn command(&mut self, tokens: &mut Tokens) -> Result<TemplateCommand, String> {
        let mut operands = Vec::new();
        while let Some(token) =
            tokens.next_if(|token| !matches!(token, ActionToken::Pipe | ActionToken::Close))
        {
            operands.push(self.operand(token, tokens)?);
        }
        match operands.first() {
            None => Err("missing value in an action".to_owned()),
            Some(TemplateOperand::Function(_)) => Ok(operands),
            Some(_) if operands.len() == 1 => Ok(operands),
            Some(_) => Err("only a function takes arguments".to_owned()),
        }
    }

    fn operand(
        &mut self,
        token: ActionToken,
        tokens: &mut Tokens,
    ) -> Result<TemplateOperand, String> {
        Ok(match token {
            ActionToken::Dot => TemplateOperand::Dot,
            ActionToken::Int(value) => TemplateOperand::Int(value),
            ActionToken::Float(value) => TemplateOperand::Float(value),
            ActionToken::Text(text) => TemplateOperand::Text(text),
            ActionToken::Field { name, .. } => {
                let mut names = vec![name];
                names.extend(attached_fields(tokens));
                TemplateOperand::Fields(names)
            }
            ActionToken::Variable(name) => {
                self.known_variable(&name)?;
                TemplateOperand::Variable(name, attached_fields(tokens))
            }
            ActionToken::Word(word) => match word.as_str() {
                "true" | "false" => TemplateOperand::Bool(word == "true"),
                "nil" => TemplateOperand::Nil,
                name => TemplateOperand::Function(functions::find(name)?),
            },
            ActionToken::Open => {
                self.enter()?;
                let inner = self.pipeline(tokens, false)?;
                self.depth -= 1;
                if !inner.variables.is_empty() {
                    return Err("a variable cannot be declared in parentheses".to_owned());
                }
                if tokens.next() != Some(ActionToken::Close) {
                    return Err("unclosed left paren".to_owned());
                }
                TemplateOperand::Nested(inner, attached_fields(tokens))
            }
            other => return Err(format!("unexpected {} in an action", describe(&other))),
        })
    }

    fn known_variable(&self, name: &str) -> Result<(), String> {
        if self.variables.iter().any(|known| known == name) {
            return Ok(());
        }
        Err(format!("undefined variable \"${name}\""))
    }
}

type Tokens = std::iter::Peekable<std::vec::IntoIter<ActionToken>>;

/// Takes `$a :=`, `$a =` or, in a range, `$a, $b :=` from the tokens.
fn declared(tokens: &mut Tokens, is_range: bool) -> Result<(Vec<String>, bool), String> {
    let mut names = Vec::new();
    let mut ahead = tokens.clone();
    while let Some(ActionToken::Variable(name)) = ahead.next() {
        names.push(name);
        match ahead.next() {
            Some(ActionToken::Comma) if is_range && names.len() == 1 => {}
            Some(separator @ (ActionToken::Declare | ActionToken::Assign)) => {
                *tokens = ahead;
                return Ok((names, separator == ActionToken::Assign));
            }
            Some(ActionToken::Comma) => return Err("too many declarations".to_owned()),
            _ => break,
        }
    }
    Ok((Vec::new(), false))
}

fn attached_fields(tokens: &mut Tokens) -> Vec<String> {
    let mut names = Vec::new();
    while let Some(ActionToken::Field { name, .. }) =
        tokens.next_if(|token| matches!(token, ActionToken::Field { attached: true, .. }))
    {
        names.push(name);
    }
    names
}

fn describe(token: &ActionToken) -> String {
    match token {
        ActionToken::Word(name) => format!("{name:?}"),
        ActionToken::Variable(name) => format!("\"${name}\""),
        ActionToken::Field { name, .. } => format!("\".{name}\""),
        ActionToken::Dot => "\".\"".to_owned(),
        ActionToken::Text(text) => format!("{text:?}"),
        ActionToken::Int(value) => value.to_string(),
        ActionToken::Float(value) => value.to_string(),
        ActionToken::Pipe => "\"|\"".to_owned(),
        ActionToken::Comma => "\",\"".to_owned(),
        ActionToken::Declare => "\":=\"".to_owned(),
        ActionToken::Assign => "\"=\"".to_owned(),
        ActionToken::Open => "\"(\"".to_owned(),
        ActionToken::Close => "\")\"".to_owned(),
    }
}
