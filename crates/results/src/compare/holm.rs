//! Many metrics at once: how sure each single difference must be, so that all together are as sure as is asked for (Holm, 1979).

/// What Holm's procedure says of one metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Judged {
    /// There is a difference.
    pub(super) differs: bool,
    /// The probability of error at which it was judged.
    pub(super) alpha: f64,
}

/// Judges differences that have the probabilities `chances` if there are none. With probability `alpha` at most, one or more is found
/// where there is none, whatever the others are and however they depend on each other.
pub(super) fn judge(chances: &[f64], alpha: f64) -> Vec<Judged> {
    let mut order: Vec<usize> = (0..chances.len()).collect();
    order.sort_by(|one, other| chances[*one].total_cmp(&chances[*other]));
    let mut judged = vec![Judged { differs: false, alpha }; chances.len()];
    let mut failed = None;
    for (place, &metric) in order.iter().enumerate() {
        #[expect(clippy::cast_precision_loss, reason = "a number of metrics")]
        let share = failed.unwrap_or(alpha / (chances.len() - place) as f64);
        let differs = failed.is_none() && chances[metric] <= share;
        if !differs {
            failed = Some(share);
        }
        judged[metric] = Judged { differs, alpha: share };
    }
    judged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holm_goes_on_while_each_is_sure_enough_for_those_left() {
        // Holm's own steps: 0.05 / 4, / 3, / 2; the third is not sure enough, and ends it.
        let judged = judge(&[0.03, 0.001, 0.04, 0.016], 0.05);
        let differs: Vec<bool> = judged.iter().map(|one| one.differs).collect();
        assert_eq!(differs, [false, true, false, true]);
        assert_eq!(judged[1].alpha, 0.0125);
        assert_eq!((judged[0].alpha, judged[2].alpha), (0.025, 0.025));
        assert!(judge(&[], 0.05).is_empty());
    }

    #[test]
    fn holm_one_metric_has_all_of_alpha() {
        assert!(judge(&[0.05], 0.05)[0].differs && !judge(&[0.051], 0.05)[0].differs);
    }
}
