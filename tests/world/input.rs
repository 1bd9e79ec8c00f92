//! What the world may do in a step, as a small alphabet.

use super::{Endpoint, Lab, Source, Uplink};

/// The endpoints of the small world.
pub const NAMES: [&str; 3] = ["a", "b", "c"];

/// What the world does in a step.
#[derive(Clone, Debug)]
pub struct Input {
    pub endpoints: [Endpoint; 3],
    pub uplink: Uplink,
    pub source: Source,
    pub blind: bool,
    fail_at: Option<usize>,
    asked: bool,
}

pub fn inputs() -> Vec<Input> {
    use Endpoint::{Alive, Dead};
    let lists = Source::lists(&NAMES);
    let well = Input {
        endpoints: [Alive; 3],
        uplink: Uplink::Up,
        source: lists,
        blind: false,
        fail_at: None,
        asked: false,
    };
    let mut all = Vec::new();
    for bits in 0..8_u8 {
        let up = |n: u8| if bits & (1 << n) == 0 { Alive } else { Dead };
        all.push(Input { endpoints: [up(0), up(1), up(2)], ..well.clone() });
    }
    all.extend(beside(&well));
    all
}

/// What happens beside endpoints that come and go.
fn beside(well: &Input) -> Vec<Input> {
    use Endpoint::{Alive, Dead, SmallOnly, TrialOnly};
    let mut all = Vec::new();
    let unavailable = Input { source: Source::Unavailable, ..well.clone() };
    all.push(unavailable.clone());
    all.push(Input { endpoints: [Dead, Alive, Alive], ..unavailable.clone() });
    all.push(Input { endpoints: [Dead; 3], ..unavailable });
    all.push(Input { source: Source::lists(&[]), ..well.clone() });
    all.push(Input { source: Source::lists(&["a"]), ..well.clone() });
    all.push(Input { endpoints: [TrialOnly; 3], ..well.clone() });
    all.push(Input { endpoints: [Alive, SmallOnly, TrialOnly], ..well.clone() });
    all.push(Input { uplink: Uplink::Down, ..well.clone() });
    all.push(Input { uplink: Uplink::FallsAtProof, ..well.clone() });
    all.push(Input {
        uplink: Uplink::ReferencesDown,
        endpoints: [Alive, Dead, Dead],
        ..well.clone()
    });
    all.push(Input { blind: true, ..well.clone() });
    all.push(Input { fail_at: Some(1), ..well.clone() });
    all.push(Input { asked: true, ..well.clone() });
    all
}

impl Input {
    pub fn put(&self, lab: &mut Lab) {
        for (name, endpoint) in NAMES.iter().zip(self.endpoints) {
            lab.set(&[name], endpoint);
        }
        lab.uplink = self.uplink;
        lab.source = self.source.clone();
        lab.blind = self.blind;
        lab.fail_at = self.fail_at;
        if self.asked
            && let Some(state) = &mut lab.state
        {
            state.refresh_asked = Some(lab.now.clone());
        }
    }
}
