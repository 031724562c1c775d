use super::*;

const EVERY: Duration = Duration::from_secs(1);

/// What is found at each beat, with so many signs of life by then.
fn found(signs: &[u64]) -> Vec<Pulse> {
    let mut beat = Beat::new(EVERY, 2);
    signs.iter().map(|&signs| beat.check(beat.due(), signs)).collect()
}

#[test]
fn missed_beats_must_follow_each_other() {
    assert_eq!(found(&[1, 2, 2, 3, 3, 4]), [Pulse::Due; 6]);
    assert_eq!(found(&[1, 1, 1]), [Pulse::Due, Pulse::Due, Pulse::Dead]);
}

#[test]
fn nothing_is_found_before_a_beat_is_due() {
    let mut beat = Beat::new(EVERY, 1);
    let before = beat.due() - Duration::from_millis(1);
    assert_eq!(beat.check(before, 0), Pulse::Early);
    assert_eq!(beat.check(beat.due(), 0), Pulse::Dead);
}

#[test]
fn an_absence_of_ones_own_counts_once() {
    let mut beat = Beat::new(EVERY, 2);
    let late = beat.due() + 100 * EVERY;
    assert_eq!(beat.check(late, 0), Pulse::Due);
    assert_eq!(beat.check(late, 0), Pulse::Early);
}
