//! `crosslane top` as its users meet it: the real command on a pseudo-terminal, beside real daemons.

mod daemon;
mod display;
mod life;
mod output;
mod terminal;

use crosslane_node::Arguments;
use libtest_mimic::Trial;
use std::process::ExitCode;

/// Each with its name.
const TESTS: &[(&str, fn())] = &[
    ("top_shows_ring_ports_streams_and_latency", display::shows_everything),
    ("top_obeys_its_keys", display::obeys_keys),
    ("top_fits_itself_to_another_size", display::fits_another_size),
    ("top_shows_hostile_names_harmlessly", display::is_not_fooled_by_names),
    ("top_tells_of_a_cable_that_was_lost", display::tells_of_a_lost_cable),
    ("top_without_colour_in_ascii", display::is_plain_where_it_must),
    ("top_gives_the_terminal_back_by_keys_and_signals", life::gives_back),
    ("top_says_that_its_daemon_went_away", life::says_that_the_daemon_is_gone),
    ("top_waits_for_a_daemon_that_hangs", life::waits_for_a_hanging_daemon),
    ("top_stops_and_goes_on_as_a_job", life::is_a_job),
    ("top_does_not_stop_without_a_shell", life::does_not_stop_alone),
    ("top_ends_with_its_terminal", life::ends_with_its_terminal),
    ("top_sleeps_while_it_is_paused", life::sleeps),
    ("top_of_pipes_is_text_or_json", output::is_text_or_json),
    ("top_plain_draws_nothing_on_a_terminal", output::plain_draws_nothing),
];

fn main() -> ExitCode {
    if let Some(config) = daemon::asked_for() {
        return crosslane_node::run(&Arguments { config, check: false });
    }
    let trial = |&(name, test): &(&str, fn())| {
        Trial::test(name, move || {
            test();
            Ok(())
        })
    };
    libtest_mimic::run(&libtest_mimic::Arguments::from_args(), TESTS.iter().map(trial).collect()).exit_code()
}
