//! The hostile programs of the attack suite: `crosslane-attacker ATTACK ARGUMENTS`. See [`crosslane_e2e::attacks`].

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    crosslane_e2e::attacks::run(&words)
}
