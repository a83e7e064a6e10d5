//! Maps keys to actions, and holds the help texts of the keys.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::app::KeyAction;
use super::view::TopView;

/// Keys and their descriptions, as shown in the help.
pub(super) const KEYS: [(&str, &str); 14] = [
    ("q, Ctrl-C", "quit"),
    ("?", "this help"),
    ("1 to 9", "select a view; 9: the nodes below a parent"),
    ("tab, left, right", "next, previous view"),
    ("s, S", "sort by the next, the previous column"),
    ("b", "processes by process, user, cgroup, job"),
    ("", "programs by call, by series"),
    ("/", "filter rows by words"),
    ("enter", "details of the selected row; show that node"),
    ("esc", "clear the filter, close"),
    ("up, down, j, k", "select a row, scroll"),
    ("page up/down, home, end", "scroll in larger steps"),
    ("space", "pause, resume"),
    ("Ctrl-Z, Ctrl-L", "suspend; redraw"),
];

/// Returns the action of a key; `None` if it has none.
pub(super) fn action(key: KeyEvent, is_typing: bool) -> Option<KeyAction> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('c') => Some(KeyAction::Quit),
            KeyCode::Char('z') => Some(KeyAction::Suspend),
            KeyCode::Char('l') => Some(KeyAction::Redraw),
            _ => None,
        };
    }
    match key.code {
        KeyCode::Up => Some(KeyAction::Move(-1)),
        KeyCode::Down => Some(KeyAction::Move(1)),
        KeyCode::PageUp => Some(KeyAction::Page(-1)),
        KeyCode::PageDown => Some(KeyAction::Page(1)),
        KeyCode::Home => Some(KeyAction::First),
        KeyCode::End => Some(KeyAction::Last),
        KeyCode::Esc => Some(KeyAction::Escape),
        KeyCode::Tab => Some(KeyAction::CycleView(1)),
        KeyCode::BackTab => Some(KeyAction::CycleView(-1)),
        KeyCode::Enter if is_typing => Some(KeyAction::Accept),
        KeyCode::Backspace if is_typing => Some(KeyAction::Erase),
        KeyCode::Char(character) if is_typing => Some(KeyAction::Type(character)),
        KeyCode::Enter => Some(KeyAction::Detail),
        KeyCode::Right => Some(KeyAction::CycleView(1)),
        KeyCode::Left => Some(KeyAction::CycleView(-1)),
        KeyCode::Char(character) => plain_key(character),
        _ => None,
    }
}

fn plain_key(character: char) -> Option<KeyAction> {
    Some(match character {
        'q' => KeyAction::Quit,
        '?' | 'h' => KeyAction::Help,
        '/' => KeyAction::Filter,
        's' => KeyAction::Sort(1),
        'S' => KeyAction::Sort(-1),
        'b' => KeyAction::Group,
        ' ' | 'p' => KeyAction::Pause,
        'j' => KeyAction::Move(1),
        'k' => KeyAction::Move(-1),
        'g' => KeyAction::First,
        'G' => KeyAction::Last,
        '1'..='9' => KeyAction::Show(TopView::OF_PARENT[character as usize - '1' as usize]),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_text_while_typing_a_filter() {
        let key = |code| KeyEvent::new(code, KeyModifiers::NONE);
        assert_eq!(
            action(key(KeyCode::Char('q')), false),
            Some(KeyAction::Quit)
        );
        assert_eq!(
            action(key(KeyCode::Char('q')), true),
            Some(KeyAction::Type('q'))
        );
        assert_eq!(action(key(KeyCode::Enter), true), Some(KeyAction::Accept));
        assert_eq!(action(key(KeyCode::Enter), false), Some(KeyAction::Detail));
        assert_eq!(
            action(key(KeyCode::Char('8')), false),
            Some(KeyAction::Show(TopView::Metrics))
        );
        assert_eq!(
            action(key(KeyCode::Char('9')), false),
            Some(KeyAction::Show(TopView::Nodes))
        );
        assert_eq!(action(key(KeyCode::Char('0')), false), None);
        let control = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(action(control, true), Some(KeyAction::Quit));
    }
}
