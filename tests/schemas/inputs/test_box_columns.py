"""Tests for find_box_columns."""

import pytest

from recordmill.schemas.inputs.box_columns import find_box_columns


@pytest.mark.parametrize(
    ("names", "box", "format_", "sides"),
    [
        ("image,xmin,ymin,xmax,ymax,label", "xmin,ymin,xmax,ymax", "xyxy", ""),
        ("XMin,XMax,YMin,YMax,xmin,ymin", "XMin,YMin,XMax,YMax", "xyxy", ""),
        ("xmin,ymin,xmax,ymax,XMin,YMin,XMax,YMax", "xmin,ymin,xmax,ymax", "xyxy", ""),
        ("XMin,YMin,XMax,YMax,xmin,ymin,xmax,ymax", "xmin,ymin,xmax,ymax", "xyxy", ""),
        ("x1,y1,x2,y2,width,height", "x1,y1,x2,y2", "xyxy", "width,height"),
        ("x0,y0,x1,y1", "x0,y0,x1,y1", "xyxy", ""),
        ("left,top,right,bottom", "left,top,right,bottom", "xyxy", ""),
        ("bbox_x1,bbox_y1,bbox_x2,bbox_y2,x1,y1,x2,y2", "bbox_x1,bbox_y1,bbox_x2,bbox_y2", "xyxy", ""),
        ("x,y,w,h,width,height", "x,y,w,h", "xywh", "width,height"),
        ("x,y,width,height", "x,y,width,height", "xywh", ""),
        ("x,y,width,height,img_width,img_height", "x,y,width,height", "xywh", "img_width,img_height"),
        ("left,top,width,height", "left,top,width,height", "xywh", ""),
        ("Box X,Box Y,Box W,Box H,width,height", "Box X,Box Y,Box W,Box H", "xywh", "width,height"),
        (
            "bbox_x,bbox_y,bbox_width,bbox_height,width,height",
            "bbox_x,bbox_y,bbox_width,bbox_height",
            "xywh",
            "width,height",
        ),
        ("x_center,y_center,width,height", "x_center,y_center,width,height", "cxcywh", ""),
        ("BBox,label,image", "BBox", "", ""),
        ("bounding box,width,height", "bounding box", "", "width,height"),
        *(
            (names, "", "", "")
            for names in ("xmin,ymin,xmax,label", "x,y,label", "width,height", "box,boxes", "", "bboxid")
        ),
    ],
)
def test_find_box_columns(names, box, format_, sides):
    columns = find_box_columns(names.split(","))
    if not box:
        assert columns is None
        return
    assert (",".join(columns.box), ",".join(columns.sides)) == (box, sides)
    assert (columns.format.value if columns.format else "") == format_
