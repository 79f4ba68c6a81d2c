/* The edge of tests/verify/edge_world.py (absolute limits, fence, dedup, probe, cancel) in Promela, for Spin.

   One process that never ends, one atomic step per action of the world. Scratch variables return to 0 after each step,
   so that a state of Spin is a state of the world. */
#define CHANNEL (W + 2)
#define CREDITS 3
chan data = [CHANNEL] of { byte, byte };
chan credit = [CREDITS] of { byte, byte };
byte next, limit = W, done, losses = LOSS, dups = DUP, kills = KILL, epoch, cancelled, held, gap, e, q;
bit has[K];

inline forget() { gap = 0; do :: gap < K -> has[gap] = 0; gap++ :: else -> break od; gap = 0; held = 0 }
inline missing() { gap = done; do :: gap < K && has[gap] -> gap++ :: else -> break od }

active proctype edge()
{
end: do
    :: d_step { cancelled == 1 ->
        do :: nempty(data) -> data?e,q :: empty(data) -> break od;
        do :: nempty(credit) -> credit?e,q :: empty(credit) -> break od;
        forget(); limit = W; cancelled = 2; e = 0; q = 0 }
    :: d_step { cancelled == 0 && done < K -> cancelled = 1 }
    :: d_step { cancelled == 0 && next < K && next < limit && nfull(data) -> data!epoch,next; next++ }
    :: d_step { cancelled == 0 && nempty(data) ->
        data?e,q;
        if :: e == epoch && q >= done && !has[q] -> has[q] = 1; held++; assert(held <= W) :: else fi;
        e = 0; q = 0 }
    :: d_step { cancelled == 0 && losses > 0 && nempty(data) -> data?e,q; losses--; e = 0; q = 0 }
    :: d_step { cancelled == 0 && dups > 0 && nempty(data) && nfull(data) ->
        data?<e,q>; data!e,q; dups--; e = 0; q = 0 }
    :: d_step { cancelled == 0 && done < K && has[done] ->
        has[done] = 0; held--; done++;
        if :: full(credit) -> credit?e,q :: nfull(credit) fi;
        credit!epoch,done + W; e = 0; q = 0 }
    :: d_step { cancelled == 0 && nempty(credit) ->
        credit?e,q;
        if :: e == epoch && q > limit -> limit = q :: else fi;
        e = 0; q = 0 }
    :: d_step { cancelled == 0 && losses > 0 && nempty(credit) -> credit?e,q; losses--; e = 0; q = 0 }
    :: d_step { cancelled == 0 && dups > 0 && nempty(credit) && nfull(credit) ->
        credit?<e,q>; credit!e,q; dups--; e = 0; q = 0 }
    :: d_step { cancelled == 0 && done < K && empty(data) && empty(credit) ->
        missing();
        if :: gap < next -> data!epoch,gap :: else fi;
        gap = 0 }
    :: d_step { cancelled == 0 && done < K && empty(data) && empty(credit) && limit < done + W ->
        credit!epoch,done + W }
    :: d_step { cancelled == 0 && kills > 0 && done < K ->
        kills--; forget(); epoch++; next = done; limit = done + W }
    od
}
