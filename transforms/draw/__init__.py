"""Records as pictures with their boxes, masks, keypoints and names drawn in."""
