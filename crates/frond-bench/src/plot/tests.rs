//! Axes, the cut at marks, and both drawings.

use super::axis::{Axis, label};
use super::*;

fn chart(scale: Scale) -> Chart {
    let line = |rate: f64| (0..60).map(|at| (f64::from(at), rate + f64::from(at % 7) * rate / 20.0)).collect();
    Chart {
        title: "Rows <inserted> & acknowledged".to_owned(),
        unit: "rows/s".to_owned(),
        scale,
        series: vec![
            Series { name: "frond".to_owned(), points: line(100_000.0) },
            Series { name: "rival".to_owned(), points: line(2_000.0) },
        ],
        marks: vec![Mark { seconds: 30.5, label: "kill -9".to_owned() }],
    }
}

#[test]
fn ticks_are_round_and_reach_the_top() {
    let axis = Axis::linear(93_000.0, 5);
    assert_eq!(axis.ticks, [0.0, 20_000.0, 40_000.0, 60_000.0, 80_000.0, 100_000.0]);
    assert_eq!(axis.place(50_000.0), 0.5);
    assert_eq!(Axis::logarithmic(150.0, 80_000.0).ticks, [100.0, 1_000.0, 10_000.0, 100_000.0]);
    assert_eq!(Axis::time(63.0, 6).ticks, [0.0, 20.0, 40.0, 60.0]);
    assert_eq!(Axis::linear(0.0, 5).place(0.0), 0.0);
}

#[test]
fn labels_are_short() {
    assert_eq!([0.0, 0.5, 250.0, 1_500.0, 20_000.0, 1e6].map(label), ["0", "0.5", "250", "1.5 k", "20 k", "1 M"]);
}

#[test]
fn a_mark_interrupts_the_line() {
    let chart = chart(Scale::Linear);
    let pieces = chart.series[0].pieces(&chart.marks);
    assert_eq!(pieces.iter().map(|piece| piece.len()).collect::<Vec<_>>(), [31, 29]);
}

#[test]
fn the_svg_is_escaped_and_shows_each_piece() {
    let svg = chart(Scale::Linear).svg();
    assert!(svg.contains("Rows &lt;inserted&gt; &amp; acknowledged"));
    assert_eq!(svg.matches("class=\"line").count(), 4);
    assert_eq!(svg.matches("class=\"mark\"").count(), 1);
    assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
}

#[test]
fn the_terminal_chart_fits_and_shows_line_and_mark() {
    for scale in [Scale::Linear, Scale::Logarithmic] {
        let text = chart(scale).terminal(80, 20, false);
        assert!(text.lines().all(|line| line.chars().count() <= 81), "{text}");
        assert_eq!(text.lines().count(), 20, "{text}");
        assert!(text.chars().any(|letter| ('\u{2801}'..='\u{28ff}').contains(&letter)));
        assert!(text.contains('┊') && text.contains("kill -9"));
    }
}

#[test]
fn an_empty_chart_is_drawn_without_a_panic() {
    let empty = Chart { series: Vec::new(), marks: Vec::new(), ..chart(Scale::Logarithmic) };
    assert!(empty.svg().contains("</svg>"));
    assert!(!empty.terminal(10, 2, true).is_empty());
}
