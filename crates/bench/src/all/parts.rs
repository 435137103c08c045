//! The experiments that `crosslane bench all` goes through.

use crate::affinity::Cores;
use crate::apps::{self, Apps};
use crate::direct::{self, DirectVsTcp};
use crate::frame::Experiment;
use crate::frame::args::Common;
use crate::kernel::{self, KernelClients};
use crate::media::{self, Media};
use crate::quick::{Quick, Suite};
use crate::ring::{self, RingOfThree};
use crate::scale::{self, Scale};
use crate::scratchpad::{self, Scratchpads};
use crate::sdp::{self, Sdp};
use crate::stack::{self, Stack};
use crate::steady::{self, Steady};

/// One of them.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Its name, as `crosslane bench` has it.
    pub name: &'static str,
    /// Makes it, with these options; nothing is started yet.
    pub make: fn(&Common) -> Box<dyn Experiment>,
    /// Whether a quick run leaves it out, if it is not asked for.
    pub is_slow: bool,
}

/// All of them, in the order in which they run: those that say most come first.
pub const PARTS: [Part; 11] = [
    part("quick", |common| Box::new(Suite::new(Quick::usual(common)))),
    part("direct-vs-tcp", |common| Box::new(DirectVsTcp::new(direct::Plan::usual(common)))),
    part("ring", |common| Box::new(RingOfThree::new(ring::Plan::usual(common)))),
    part("sdp", |common| Box::new(Sdp::new(sdp::Plan::usual(common)))),
    part("stack", |common| Box::new(Stack::new(stack::Plan::usual(common)))),
    part("scratchpad", scratchpads),
    part("steady", |common| Box::new(Steady::new(steady::Plan::usual(common)))),
    part("media", |common| Box::new(Media::new(media::Plan::usual(common)))),
    part("scale", |common| Box::new(Scale::new(scale::Plan::usual(common)))),
    part("apps", |common| Box::new(Apps::new(apps::Plan::usual(common)))),
    Part {
        is_slow: true,
        ..part("kernel", |common| Box::new(KernelClients::new(kernel::Plan::usual(common))))
    },
];

const fn part(name: &'static str, make: fn(&Common) -> Box<dyn Experiment>) -> Part {
    Part { name, make, is_slow: false }
}

fn scratchpads(common: &Common) -> Box<dyn Experiment> {
    /// Hosts of the study's ring.
    const HOSTS: u32 = 5;
    let plan = scratchpad::Plan::new(HOSTS, common.quick);
    let plan = scratchpad::Plan { runs: common.runs(plan.runs, plan.runs), ..plan };
    Box::new(Scratchpads::new(plan, Cores::pick().unwrap_or(Cores { near: 0, far: 0 })))
}
