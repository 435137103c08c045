//! What a host between costs: stream bandwidth and one-way latency over 0 to 3 pumps, all polled, medians.
//! `cargo run --release -p crosslane-bench --example pump`

use anyhow::Result;
use crosslane_bench::figure::Sample;
use crosslane_bench::pumped::Chain;
use std::time::Duration;

const RUNS: usize = 11;
const TIME: Duration = Duration::from_millis(300);
const PIECE: usize = 128 << 10;
const MOST: usize = 3;

fn main() -> Result<()> {
    let mut chains = (0..=MOST).map(Chain::new).collect::<Result<Vec<_>>>()?;
    let (mut rates, mut times) = (vec![Vec::new(); MOST + 1], vec![Vec::new(); MOST + 1]);
    for _ in 0..RUNS {
        for (at, chain) in chains.iter_mut().enumerate() {
            rates[at].push(chain.rate(PIECE, TIME)? / 1e9);
            times[at].push(chain.one_way(1, TIME)?);
        }
    }
    let medians = |runs: Vec<Vec<f64>>| -> Vec<f64> {
        runs.into_iter().filter_map(Sample::new).map(|sample| sample.median).collect()
    };
    let (rates, times) = (medians(rates), medians(times));
    println!("pumps  GB/s   of bare  one-way ns  added ns");
    for (count, (rate, time)) in rates.iter().zip(&times).enumerate() {
        let (bare, before) = (rates[0], times[count.saturating_sub(1)]);
        println!("{count:5}  {rate:5.2}  {:5.0} %  {time:10.0}  {:8.0}", rate / bare * 100.0, time - before);
    }
    Ok(())
}
